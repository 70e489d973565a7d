"""Run the tests that are written in JavaScript, one file at a time."""

import subprocess
from pathlib import Path

import pytest

TEST_FILES = sorted(Path(__file__).parent.glob("*.test.js"))


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.name)
def test_a_javascript_test_file_passes(node, path):
    command = [node, "--test", "--test-reporter=spec", str(path)]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)
