"""Fixtures with the push client loaded as scripts load it: a single file in its own directory."""

import importlib.util
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

from backend.exchange.push.api import CLIENT


def load_client() -> ModuleType:
    """Return a fresh copy of the module."""
    spec = importlib.util.spec_from_file_location("grpolab", CLIENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["grpolab"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def grpolab(tmp_path, monkeypatch) -> Iterator[ModuleType]:
    """The client with short pauses and its own directory, whose threads end with the test."""
    monkeypatch.chdir(tmp_path)
    module = load_client()
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.02)
    monkeypatch.setattr(module, "MAX_PAUSE_SECONDS", 0.1)
    earlier_threads = set(threading.enumerate())
    yield module
    remaining_threads = [
        thread
        for thread in threading.enumerate()
        if thread not in earlier_threads and thread.name == "grpolab"
    ]

    def send(_service: object, _spool: object) -> bool:
        raise module._Unwanted

    module._Service.send = send
    for thread in remaining_threads:
        thread.join(5)
