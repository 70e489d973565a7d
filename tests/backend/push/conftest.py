"""The client as scripts import it: the file alone, in a directory of its own."""

import importlib.util
import sys
from types import ModuleType

import pytest

from backend.push.api import CLIENT


def load() -> ModuleType:
    """A fresh copy of the module."""
    spec = importlib.util.spec_from_file_location("grpolab", CLIENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["grpolab"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def grpolab(tmp_path, monkeypatch) -> ModuleType:
    """Quick, and in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    module = load()
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.02)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.1)
    return module
