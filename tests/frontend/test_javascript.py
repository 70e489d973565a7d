"""Run the tests that are written in JavaScript, one file at a time."""

import subprocess
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("*.test.js"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_modules_of_the_pages_do_what_their_tests_say(node, path):
    command = [node, "--test", "--test-reporter=spec", str(path)]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)
