"""`pytest --quick`: the tests that need no other process, browser, server or injected fault.

A test's folder, fixtures and database say most of that. A test that starts a process by itself is marked
`processes`, and one that takes too long is marked `slow`. A quick test that starts a process fails.
"""

import multiprocessing.util
import sys
from collections.abc import Generator
from typing import Any

import pytest

FOLDERS = frozenset({"browser", "faults", "fuzz", "images", "system"})
"""Folders of `tests/` that drive a whole service from outside."""

FIXTURES = frozenset({"postgres", "postgres_url", "valkey_url", "warm", "chromium", "checkers", "chain_sum"})
"""Fixtures that start a server, a browser or a sandbox."""

MARKS = ("processes", "slow", "gpu")

EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
"""Python's audit events of a new process."""


class StartedProcesses(list[str]):
    """Processes that this one has started since the last `clear`, each as the call that started it.

    `multiprocessing` raises no audit event when it spawns, so its function is wrapped.
    """

    def __init__(self) -> None:
        super().__init__()
        sys.addaudithook(self._note)
        spawn = multiprocessing.util.spawnv_passfds

        def noted_spawn(path: Any, args: Any, passfds: Any) -> int:
            self.append("multiprocessing")
            return spawn(path, args, passfds)

        multiprocessing.util.spawnv_passfds = noted_spawn

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS:
            self.append(f"{event} {arguments[1]}"[:200] if event == "subprocess.Popen" else event)


class QuickTests:
    """The plugin of `--quick`: deselects all other tests and fails a test that starts a process."""

    def __init__(self) -> None:
        self.started = StartedProcesses()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if not is_quick(item)]
        items[:] = [item for item in items if is_quick(item)]
        config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.started.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield
        if self.started:
            pytest.fail(
                f"{item.name} starts a process, and a quick test must not: mark it @pytest.mark.processes. "
                f"Started: {'; '.join(self.started)}",
                pytrace=False,
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that need nothing but this process")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        config.pluginmanager.register(QuickTests(), "quick-tests")


def is_quick(item: pytest.Item) -> bool:
    """Whether `--quick` runs a test."""
    return not (
        item.path.relative_to(item.config.rootpath / "tests").parts[0] in FOLDERS
        or FIXTURES.intersection(getattr(item, "fixturenames", ()))
        or "postgres" in _databases(item)
        or any(item.get_closest_marker(mark) for mark in MARKS)
    )


def _databases(item: pytest.Item) -> tuple[Any, Any]:
    """Which database a test runs on, where it runs on several."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return params.get("database"), params.get("empty_url")
