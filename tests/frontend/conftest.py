"""Fixtures that execute the modules of the pages in Node, without a browser.

node     path of Node
in_node  runs JavaScript on a module of frontend/src: in_node("lib/text/csv.js", "m => m.csvCell(0)")"""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.conftest import require

ANSWER_SCRIPT = Path(__file__).with_name("answer.js")


@pytest.fixture(scope="session")
def node() -> str:
    return require(servers.find_node)


@pytest.fixture(scope="session")
def in_node(node: str) -> Iterator[Callable[..., Any]]:
    command = [node, str(ANSWER_SCRIPT)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:

        def run(module: str, source: str, argument: object = None) -> Any:
            call = {"module": module, "source": source, "argument": argument}
            print(json.dumps(call, allow_nan=False), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, "Node has ended"
            answer = json.loads(line)
            assert "error" not in answer, answer["error"]
            return answer.get("value")

        yield run
