"""Tests that the Makefile installs once, even if several processes request it at the same time."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK_FILES = (
    "requirements.lock",
    "requirements-service.lock",
    "requirements-torch.lock",
    "requirements-nodeps.lock",
    "requirements-dev.lock",
)

FAKE_PYTHON = f"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
  echo venv >> said
  mkdir -p .venv/bin && cp stub-pip .venv/bin/python && touch .venv/bin/pip
else
  exec {sys.executable} "$@"
fi
"""
FAKE_PIP = f"""#!/bin/sh
if [ "$1" = "-c" ]; then exec {sys.executable} "$@"; fi
echo begin >> said; sleep 0.2; echo end >> said
"""


@pytest.fixture
def project(tmp_path):
    """A project with nothing to install, where `said` returns what was done."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in LOCK_FILES:
        (tmp_path / name).touch()
    for name, text in (("stub-python", FAKE_PYTHON), ("stub-pip", FAKE_PIP)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def make(project, *targets):
    """Make each target in a separate concurrent process, and return the results."""
    processes = [
        subprocess.Popen(
            ["make", f"PYTHON={project}/stub-python", f".venv/{target}.stamp"],
            cwd=project,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for target in targets
    ]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    return [process.returncode for process in processes], outputs


@pytest.mark.parametrize("targets", [("runtime", "runtime"), ("dev", "runtime")])
def test_of_two_concurrent_installations_one_installs_and_the_other_waits(project, targets):
    codes, outputs = make(project, *targets)
    assert codes == [0, 0], outputs
    first, *other_words = (project / "said").read_text().split()
    assert first == "venv"
    assert other_words in (["begin", "end"] * 3, ["begin", "end"] * 6)  # each lock has three steps
    assert len(other_words) == 6 or targets[0] == "dev"


def test_installed_packages_are_unchanged_until_their_lock_changes(project):
    for _ in range(2):
        assert make(project, "runtime")[0] == [0]
    assert (project / "said").read_text().split() == ["venv", *["begin", "end"] * 3]
    (project / "requirements.lock").write_text("# newer\n")
    assert make(project, "runtime")[0] == [0]
    assert (project / "said").read_text().split() == ["venv", *["begin", "end"] * 6]


def test_a_failed_installation_is_retried(project):
    (project / "stub-pip").write_text(FAKE_PIP + "test -e network\n")
    assert make(project, "runtime")[0] != [0]
    assert not (project / ".venv" / "runtime.stamp").exists()
    (project / "network").touch()
    assert make(project, "runtime")[0] == [0]
