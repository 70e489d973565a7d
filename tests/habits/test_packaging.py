"""Tests that the lock files install anywhere, and list exactly what the code needs."""

import ast
import functools
import hashlib
import itertools
import json
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from backend.service.main import VERSION

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "frontend" / "vendor"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
TRAINER = [Requirement(text) for text in PROJECT["optional-dependencies"]["trainer"]]
DEV = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
NODEPS = (ROOT / "requirements-nodeps.lock").read_text()
TORCH = (ROOT / "requirements-torch.lock").read_text()
LOCKS = {
    name: (ROOT / name).read_text()
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-service.lock")
}
MACHINES = [
    {"python_version": python, "python_full_version": f"{python}.{patch}", "platform_machine": machine}
    | ({"sys_platform": "darwin", "platform_system": "Darwin"} if machine == "arm64" else {})
    for python, patch in (("3.11", 0), ("3.11", 9), ("3.12", 1), ("3.13", 1), ("3.14", 0))
    for machine in ("x86_64", "aarch64", "arm64")
]
"""The machines on which the locks must install."""
PARTS = {
    "anyio": "fastapi",
    "huggingface-hub": "transformers",
    "kombu": "celery",
    "pydantic-core": "pydantic",
    "starlette": "fastapi",
}
"""Distributions that another one always installs and whose interface it exposes."""


def blocks(text: str) -> list[list[str]]:
    """Return the line and the hashes of each package."""
    joined = [line for line in text.replace("\\\n", "\0").splitlines() if not line.startswith("#")]
    return [[piece.strip() for piece in line.split("\0")] for line in joined]


def pins(text: str) -> dict[str, str]:
    lines = [Requirement(block[0]) for block in blocks(text)]
    return {canonicalize_name(line.name): str(line.specifier).removeprefix("==") for line in lines}


CLIENT = ROOT / "backend/exchange/push/client/grpolab.py"


@functools.cache
def modules(folder: str) -> frozenset[str]:
    """Return the top-level modules imported by the code in `folder`, except in the push client."""
    files = [path for path in (ROOT / folder).rglob("*.py") if path != CLIENT]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return frozenset(name.partition(".")[0] for name in names)


@functools.cache
def distributions_of_modules() -> dict[str, list[str]]:
    return dict(packages_distributions())


def distributions(*folders: str) -> set[str]:
    """Return the third-party distributions that the code in `folders` imports."""
    imported = {name for folder in folders for name in modules(folder)} - set(sys.stdlib_module_names)
    installed = distributions_of_modules()
    names = {canonicalize_name(installed[name][0]) for name in imported if name in installed}
    return {PARTS.get(name, name) for name in names}


@functools.cache
def needs(name: str) -> list[Requirement]:
    """Return the requirements of a distribution without extras. Only one for this Python can be queried."""
    try:
        return [Requirement(text) for text in requires(name) or [] if "extra ==" not in text]
    except PackageNotFoundError:
        return []


def names(*groups: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for group in groups for requirement in group}


@pytest.mark.parametrize("lock", [*LOCKS, "requirements-nodeps.lock"])
def test_a_lock_is_plain_versions_and_the_hashes_of_their_files(lock):
    pin = re.compile(r"^[a-z0-9][a-z0-9._-]*==[0-9][0-9a-z.]*( ; .+)?$")
    digest = re.compile(r"^--hash=sha256:[0-9a-f]{64}$")
    for first, *hashes in blocks((ROOT / lock).read_text()):
        assert pin.match(first), first
        assert hashes, first
        assert all(map(digest.match, hashes)), first


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_complete_on_every_machine(lock):
    """With hashes, pip installs only listed packages. torch installs its own libraries."""
    pinned = pins(LOCKS[lock])
    for name, machine in itertools.product(pinned, MACHINES):
        for requirement in needs(name):
            if requirement.marker is None or requirement.marker.evaluate({**machine, "extra": ""}):
                assert canonicalize_name(requirement.name) in pinned, (
                    f"{name} needs {requirement} on {machine}"
                )


def test_what_torch_needs_beside_its_own_libraries_is_in_the_lock():
    pinned = pins(LOCKS["requirements.lock"])
    of_torch = ("nvidia-", "cuda-", "triton")
    requirements = [Requirement(text) for text in requires("torch") or [] if "extra ==" not in text]
    other_requirements = [
        requirement for requirement in requirements if not requirement.name.startswith(of_torch)
    ]
    assert other_requirements
    assert all(
        requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])
        for requirement in other_requirements
    )


def test_the_api_image_gets_all_that_the_service_declares():
    pinned = pins(LOCKS["requirements-service.lock"])
    assert names(RUNTIME) <= pinned.keys()
    assert not names(TRAINER) & pinned.keys()


def test_every_direct_dependency_is_pinned_inside_its_range():
    pinned = pins(LOCKS["requirements-dev.lock"] + NODEPS + TORCH)
    for requirement in [*RUNTIME, *TRAINER, *DEV]:
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_what_is_installed_without_its_dependencies_finds_all_but_the_one_that_needs_a_compiler():
    pinned = pins(LOCKS["requirements.lock"] + NODEPS + TORCH)
    requirements = [
        Requirement(text) for name in pins(NODEPS) for text in requires(name) or [] if "extra ==" not in text
    ]
    assert {
        requirement.name for requirement in requirements if canonicalize_name(requirement.name) not in pinned
    } == {"pycosat"}
    other_requirements = [requirement for requirement in requirements if requirement.name != "pycosat"]
    assert all(
        requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])
        for requirement in other_requirements
    )


def test_the_service_imports_only_what_it_declares():
    assert distributions("backend", "migrations") - names(RUNTIME) == set()


def test_the_worker_imports_only_what_it_declares():
    assert distributions("worker") - names(RUNTIME, TRAINER) == set()


def test_vendored_scripts_are_the_ones_the_manifest_names():
    manifest = json.loads((VENDOR / "manifest.json").read_text())["files"]
    assert {entry["file"] for entry in manifest} == {path.name for path in VENDOR.glob("*.js")}
    for entry in manifest:
        assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
        assert (VENDOR / entry["licence_file"]).is_file()
        assert entry["version"]


def test_the_service_has_the_version_of_the_project():
    assert PROJECT["version"] == VERSION
