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
VENDOR_DIRECTORY = ROOT / "frontend" / "vendor"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME_REQUIREMENTS = [Requirement(text) for text in PROJECT["dependencies"]]
TRAINER_REQUIREMENTS = [Requirement(text) for text in PROJECT["optional-dependencies"]["trainer"]]
DEV_REQUIREMENTS = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
NODEPS_LOCK = (ROOT / "requirements-nodeps.lock").read_text()
TORCH_LOCK = (ROOT / "requirements-torch.lock").read_text()
LOCK_NAMES = ("requirements-service.lock", "requirements.lock", "requirements-dev.lock")
"""Locks of the service, of the trainer and of the tests; each one begins with the one before."""
LOCK_TEXT_BY_NAME = {
    name: "".join((ROOT / lower).read_text() for lower in LOCK_NAMES[: LOCK_NAMES.index(name) + 1])
    for name in LOCK_NAMES
}
MACHINES = [
    {"python_version": python, "python_full_version": f"{python}.{patch}", "platform_machine": machine}
    | ({"sys_platform": "darwin", "platform_system": "Darwin"} if machine == "arm64" else {})
    for python, patch in (("3.11", 0), ("3.11", 9), ("3.12", 1), ("3.13", 1), ("3.14", 0))
    for machine in ("x86_64", "aarch64", "arm64")
]
"""The machines on which the locks must install."""
PARENT_BY_DISTRIBUTION = {
    "anyio": "fastapi",
    "huggingface-hub": "transformers",
    "kombu": "celery",
    "pydantic-core": "pydantic",
    "starlette": "fastapi",
}
"""Distributions that another one always installs and whose interface it exposes."""


def blocks(text: str) -> list[list[str]]:
    """Return the line and the hashes of each package."""
    joined_lines = [
        line for line in text.replace("\\\n", "\0").splitlines() if not line.startswith(("#", "-r "))
    ]
    return [[part.strip() for part in line.split("\0")] for line in joined_lines]


def pins(text: str) -> dict[str, str]:
    lines = [Requirement(block[0]) for block in blocks(text)]
    return {canonicalize_name(line.name): str(line.specifier).removeprefix("==") for line in lines}


CLIENT_PATH = ROOT / "backend/exchange/push/client/grpolab.py"


@functools.cache
def modules(folder: str) -> frozenset[str]:
    """Return the top-level modules imported by the code in `folder`, except in the push client."""
    files = [path for path in (ROOT / folder).rglob("*.py") if path != CLIENT_PATH]
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
    return {PARENT_BY_DISTRIBUTION.get(name, name) for name in names}


@functools.cache
def list_requirements(name: str) -> list[Requirement]:
    """Return the requirements of a distribution without extras. Only one for this Python can be queried."""
    try:
        return [Requirement(text) for text in requires(name) or [] if "extra ==" not in text]
    except PackageNotFoundError:
        return []


def names(*groups: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for group in groups for requirement in group}


@pytest.mark.parametrize("lock", [*LOCK_TEXT_BY_NAME, "requirements-nodeps.lock"])
def test_a_lock_has_plain_versions_and_the_hashes_of_their_files(lock):
    pin = re.compile(r"^[a-z0-9][a-z0-9._-]*==[0-9][0-9a-z.]*( ; .+)?$")
    digest = re.compile(r"^--hash=sha256:[0-9a-f]{64}$")
    for first, *hashes in blocks((ROOT / lock).read_text()):
        assert pin.match(first), first
        assert hashes, first
        assert all(map(digest.match, hashes)), first


@pytest.mark.parametrize("lock", LOCK_TEXT_BY_NAME)
def test_a_lock_is_complete_on_every_machine(lock):
    """With hashes, pip installs only listed packages. torch installs its own libraries."""
    pinned_versions = pins(LOCK_TEXT_BY_NAME[lock])
    for name, machine in itertools.product(pinned_versions, MACHINES):
        for requirement in list_requirements(name):
            if requirement.marker is None or requirement.marker.evaluate({**machine, "extra": ""}):
                assert canonicalize_name(requirement.name) in pinned_versions, (
                    f"{name} needs {requirement} on {machine}"
                )


def test_other_requirements_of_torch_are_in_the_lock():
    pinned_versions = pins(LOCK_TEXT_BY_NAME["requirements.lock"])
    of_torch = ("nvidia-", "cuda-", "triton")
    requirements = [Requirement(text) for text in requires("torch") or [] if "extra ==" not in text]
    other_requirements = [
        requirement for requirement in requirements if not requirement.name.startswith(of_torch)
    ]
    assert other_requirements
    assert all(
        requirement.specifier.contains(pinned_versions[canonicalize_name(requirement.name)])
        for requirement in other_requirements
    )


def test_the_api_image_gets_all_requirements_of_the_service():
    pinned_versions = pins(LOCK_TEXT_BY_NAME["requirements-service.lock"])
    assert names(RUNTIME_REQUIREMENTS) <= pinned_versions.keys()
    assert not names(TRAINER_REQUIREMENTS) & pinned_versions.keys()


def test_every_direct_dependency_is_pinned_inside_its_range():
    pinned_versions = pins(LOCK_TEXT_BY_NAME["requirements-dev.lock"] + NODEPS_LOCK + TORCH_LOCK)
    for requirement in [*RUNTIME_REQUIREMENTS, *TRAINER_REQUIREMENTS, *DEV_REQUIREMENTS]:
        assert requirement.specifier.contains(pinned_versions[canonicalize_name(requirement.name)]), (
            requirement
        )


def test_packages_installed_without_dependencies_find_all_but_the_one_that_needs_a_compiler():
    pinned_versions = pins(LOCK_TEXT_BY_NAME["requirements.lock"] + NODEPS_LOCK + TORCH_LOCK)
    requirements = [
        Requirement(text)
        for name in pins(NODEPS_LOCK)
        for text in requires(name) or []
        if "extra ==" not in text
    ]
    assert {
        requirement.name
        for requirement in requirements
        if canonicalize_name(requirement.name) not in pinned_versions
    } == {"pycosat"}
    other_requirements = [requirement for requirement in requirements if requirement.name != "pycosat"]
    assert all(
        requirement.specifier.contains(pinned_versions[canonicalize_name(requirement.name)])
        for requirement in other_requirements
    )


def test_the_service_imports_only_what_it_declares():
    assert distributions("backend", "migrations") - names(RUNTIME_REQUIREMENTS) == set()


def test_the_worker_imports_only_what_it_declares():
    assert distributions("worker") - names(RUNTIME_REQUIREMENTS, TRAINER_REQUIREMENTS) == set()


def test_vendored_scripts_match_the_manifest():
    manifest = json.loads((VENDOR_DIRECTORY / "manifest.json").read_text())["files"]
    assert {entry["file"] for entry in manifest} == {path.name for path in VENDOR_DIRECTORY.glob("*.js")}
    for entry in manifest:
        assert hashlib.sha256((VENDOR_DIRECTORY / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
        assert (VENDOR_DIRECTORY / entry["licence_file"]).is_file()
        assert entry["version"]


def test_the_service_has_the_version_of_the_project():
    assert PROJECT["version"] == VERSION
