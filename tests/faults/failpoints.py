"""Name every statement, commit and file operation of a process, and kill the process with -9 at one.

The product needs no changes for this: events of SQLAlchemy and wrapped functions of `os` report the
points.

    before Recorder._begin > leases.fence: UPDATE run
    after  Checkpoints.save: commit
    before checkpoint._publish: rename .CHECKPOINT.draft"""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

VARIABLE = "FAILPOINT"
"""Environment variable of a worker with the arguments of `arm` as JSON."""

OUR_PREFIXES = ("backend.", "worker.")
SKIPPED_MODULES = {"backend.storage.engine", "worker.db_retry", "tests.faults.failpoints"}
STATEMENT_PATTERN = re.compile(
    r"\s*(BEGIN|PRAGMA|ROLLBACK|SELECT|INSERT INTO|UPDATE|DELETE FROM)(?:.*?\bFROM)?\s*\"?(\w*)", re.DOTALL
)

FILE_OPERATIONS = ("rename", "replace", "link", "unlink", "rmdir", "mkdir", "fsync")

Visit = Callable[[str], None]


def arm_failpoints(*arguments: str) -> None:
    """Record the points (`record FILE`), or die at the next point of a `Plan` (`take DIRECTORY`)."""
    match arguments:
        case ("record", file):
            listen(_recorder(Path(file)))
        case ("take", directory):
            listen(_Death(Plan(Path(directory))))


def arm_worker() -> None:
    """Arm a worker by its environment, which its trainers do not inherit."""
    arm_failpoints(*json.loads(os.environ.get(VARIABLE, "[]")))


class Plan:
    """Points at which one process each must die, as files that move from `todo` over `taken` to `hit`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, points: Iterable[str]) -> None:
        """Plan a death at each point."""
        for name in ("todo", "taken", "hit"):
            (self.directory / name).mkdir(parents=True)
        for number, point in enumerate(points):
            (self.directory / f"todo/{number:04d}").write_text(point)

    def take_point(self) -> tuple[str, str]:
        """Take the next point and its number for this process, or return an empty point if none is left."""
        for file in sorted((self.directory / "todo").iterdir()):
            try:
                taken_file = file.rename(self.directory / f"taken/{file.name}.{os.getpid()}")
            except FileNotFoundError:
                continue  # another process was faster
            return taken_file.read_text(), taken_file.name
        return "", ""

    def record_hit(self, number: str) -> None:
        """Record that this process has reached its point."""
        (self.directory / "taken" / number).rename(self.directory / "hit" / number)

    def takers(self) -> dict[int, str]:
        """Return the process that must die at each taken point."""
        taken_files = (self.directory / "taken").iterdir()
        return {int(file.name.partition(".")[2]): file.read_text() for file in taken_files}

    def give_back(self, pid: int) -> None:
        """Return the point of a process that ended before it reached it."""
        for file in (self.directory / "taken").glob(f"*.{pid}"):
            file.rename(self.directory / "todo" / file.stem)

    def points(self, state: str) -> list[str]:
        """Return the points that are `todo`, `taken` or `hit`."""
        return [file.read_text() for file in sorted((self.directory / state).iterdir())]


class _Death:
    """Take a point at the first visit, and kill this process when it reaches the point."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._taken: tuple[str, str] | None = None

    def __call__(self, point: str) -> None:
        with self._lock:
            if self._taken is None:
                self._taken = self._plan.take_point()
            fatal_point, number = self._taken
            if point == fatal_point:
                self._plan.record_hit(number)
                os.kill(os.getpid(), signal.SIGKILL)


def _recorder(file: Path) -> Visit:
    def visit(point: str) -> None:
        with file.open("a") as lines:
            lines.write(point + "\n")

    return visit


def listen(visit: Visit, *, root: str = "/runs/") -> None:
    """Call `visit` with the name of each point that this process passes from now on.

    File operations count if their path contains `root`."""
    _listen_to_sql(visit)
    for name in FILE_OPERATIONS:
        setattr(os, name, _watch_function(getattr(os, name), name, visit, root))


def _listen_to_sql(visit: Visit) -> None:
    def visit_before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        visit(f"before {_frame()}: {_brief(statement)}")

    def visit_after(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        visit(f"after {_frame()}: {_brief(statement)}")

    event.listen(Engine, "before_cursor_execute", visit_before)
    event.listen(Engine, "after_cursor_execute", visit_after)
    event.listen(Engine, "commit", lambda _: visit(f"before {_frame()}: commit"))
    event.listen(Session, "after_commit", lambda _: visit(f"after {_frame()}: commit"))


def _watch_function(function: Callable[..., Any], name: str, visit: Visit, root: str) -> Callable[..., Any]:
    def watched(target: Any, *arguments: Any, **options: Any) -> Any:
        path = _path(target, options.get("dir_fd"))
        if root not in path:
            return function(target, *arguments, **options)
        point = f"{_frame()}: {name} {_plain(path, root)}"
        visit(f"before {point}")
        result = function(target, *arguments, **options)
        visit(f"after {point}")
        return result

    return watched


def _path(target: Any, directory: int | None) -> str:
    if isinstance(target, int):
        return str(Path(f"/proc/self/fd/{target}").readlink())
    path = os.fsdecode(target)
    if directory is None:
        return path
    return str(Path(f"/proc/self/fd/{directory}").readlink() / path)


def _plain(path: str, root: str) -> str:
    """Return a path within a run's directory, without the parts that differ between runs."""
    inner_path = path.split(root, 1)[1].partition("/")[2] or "."
    return re.sub(r"s\d{6}-a\d+(\.\d+)?", "CHECKPOINT", inner_path)


def _brief(statement: str) -> str:
    match = STATEMENT_PATTERN.match(statement)
    return " ".join(filter(None, match.groups())) if match else statement.split(maxsplit=1)[0]


def _frame() -> str:
    """Return the name of our innermost function, and the worker's function that called it if different."""
    inner_name = outer_name = ""
    frame = sys._getframe(1)
    while frame is not None and not outer_name:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(OUR_PREFIXES) and module not in SKIPPED_MODULES:
            name = frame.f_code.co_qualname.replace("<locals>.", "").replace(".<lambda>", "")
            name = name if "." in name or name[0].isupper() else f"{module.rpartition('.')[2]}.{name}"
            inner_name = inner_name or name
            outer_name = (
                name if module.startswith("worker.") and not module.startswith("worker.policy") else ""
            )
        frame = frame.f_back  # type: ignore[assignment]
    return inner_name if outer_name in ("", inner_name) else f"{outer_name} > {inner_name}"
