"""The service runs without torch: import-linter reads the imports, this runs them."""

import json
import pkgutil
import subprocess
import sys

import pytest

import backend
import worker

HEAVY = ("torch", "transformers", "tokenizers", "reasoning_gym", "math_verify")
REPORT = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(name for name in sys.modules if "." not in name or name.startswith("worker"))))
"""


def modules_after_importing(module: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", REPORT, module], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def names_of(package) -> list[str]:
    return [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


LIGHT_WORKER = [
    name
    for name in names_of(worker)
    if name in {"worker.host.app", "worker.host.tasks", "worker.host.supervisor"}
]
ENTRANCES = [
    name
    for name in names_of(backend)
    if name in {"backend.service.main", "backend.service.cli", "backend.service.docs"}
]


@pytest.mark.parametrize("module", ENTRANCES)
def test_the_service_imports_neither_torch_nor_the_worker(module):
    loaded = modules_after_importing(module)
    assert not loaded & {*HEAVY, "worker"}


@pytest.mark.parametrize("module", LIGHT_WORKER)
def test_the_process_that_supervises_trainers_imports_no_torch(module):
    assert not modules_after_importing(module) & set(HEAVY)
