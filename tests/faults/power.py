"""Power cuts at every commit and file operation of an installation, each judged separately.

A life is one act on two disks, in a process that pauses at each of its points. The images below its file
systems are then copied, since that is what a power cut would leave. Each copy is mounted afterwards,
started and judged, while the life continues. In a control, nothing is synced to the disk."""

import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Pool, event
from sqlalchemy.exc import OperationalError, ProgrammingError

from backend.service.process.gc_freeze import freeze_gc
from backend.storage.engine import open_engine, open_read_session, open_sessions
from backend.storage.models import Run
from tests import servers
from tests.faults import failpoints
from tests.faults.campaign import Round
from tests.faults.disks import Disk, image_directory, mounted_disks
from tests.faults.plant import Kind
from tests.faults.power_acts import FUNCTION_BY_ACT, Installation, furnish
from tests.faults.power_check import Row, check, visible
from tests.faults.verdict import Record, Verdict, read_record
from tests.waiting import wait_for

with freeze_gc():
    import worker.checkpoints.store
    import worker.training.trainer  # imported once here, and not in each fork

INTERVAL_BY_ACT = {
    "launching": 3,
    "training": 9,
    "sealing": 3,
    "deleting": 3,
    "backing_up": 2,
    "restoring": 2,
    "upgrading": 1,
}
"""Number of points between two cuts in one life of an act. Further lives start at the following points."""

CONTROL_CUTS = 3
"""Number of cuts in the control of each act."""

OBSERVED_ACTS = ("launching", "training", "sealing", "deleting")
"""Acts that do not lock tables, so that another process may read them at the same time."""


@dataclass(frozen=True)
class Cut:
    """The state at the moment of a power cut."""

    point: str
    images: dict[str, Path]
    visible_rows: set[Row]
    acknowledged: list[list[Any]]


@dataclass
class Ground:
    """Two disks, `state` and `db`, and the installation on them."""

    database: str
    is_apart: bool
    """Whether a SQLite database has a separate disk, as Postgres always does."""
    directory: Path
    syncs: bool = True
    servers: list[int] = field(default_factory=list)

    def disks(self, images: dict[str, Path], mount_name: str) -> list[Disk]:
        return [Disk(image, self.directory / mount_name / name) for name, image in images.items()]

    def images(self, name: str) -> dict[str, Path]:
        return {disk: self.directory / f"{name}.{disk}" for disk in ("state", "db")}

    @contextmanager
    def installed(
        self, images: dict[str, Path], name: str, *, is_new: bool = False
    ) -> Iterator[Installation]:
        """Mount the disks and run the database's server on them."""
        root = self.directory / name
        with mounted_disks(*self.disks(images, name)):
            if self.database == "sqlite":
                url = f"sqlite:///{root / 'db/grpolab.db'}" if self.is_apart else ""
                yield Installation(root, self.database, url)
                return
            start = servers.start_postgres if is_new else servers.serve_postgres
            server = start(root / "db/pg", durable=self.syncs)
            self.servers.append(server.pid)
            try:
                yield Installation(root, self.database, server.url)
            finally:
                servers.shut_down(server.pid)
                self.servers.remove(server.pid)


def cut_power(
    database: str, act: str, *, interval: int, first: int, limit: int = 0, syncs: bool = True
) -> Round:
    """Cut an act at every n-th point from the `first` on, or at `limit` points spread over it.

    In a control (if `syncs` is False), losses are counted and are not errors."""
    start_time = time.monotonic()
    with image_directory() as directory:
        ground = Ground(database, is_apart=database == "postgres" or bool(first % 2), directory=directory)
        base = ground.images("base")
        for disk in ground.disks(base, "base"):
            disk.make()
        with ground.installed(base, "base", is_new=True) as installation:
            _finish(_fork(lambda: furnish(installation, act)), "furnish")
        ground.syncs = syncs
        points, reference = _undisturbed(ground, base, act)
        cut_points = range(first, points, interval)
        if (
            limit
        ):  # none at the end: a life that depends on the clock may have fewer points than the previous one
            cut_points = range(points // limit // 2, points, max(points // limit, 1))[:limit]
        verdict, faults, lost_in = Verdict(), Counter[str](), 0
        for power_cut in _life(ground, base, act, set(cut_points)):
            verdict_of_cut = _check_cut(ground, power_cut, reference)
            lost_in += bool(verdict_of_cut.lost or verdict_of_cut.unfinished)
            faults["power_cut" if syncs else "power_cut_control"] += 1
            if syncs:
                _add(verdict, verdict_of_cut, f"{act}, {power_cut.point}: ")
    kind = Kind(database, "none", "none")
    figures = {"act": act, "points": points, "first": first, "every": interval, "apart": ground.is_apart}
    if not syncs:
        figures["cuts_that_lost"] = lost_in
        if not lost_in:
            verdict.sentences.append(f"{act}: the control lost nothing, so the campaign shows nothing")
    return Round(kind, first, faults, verdict, time.monotonic() - start_time, figures)


def campaign(databases: Sequence[str], ledger: Sequence[Mapping[str, Any]]) -> Iterator[Round]:
    """Yield each act's control, then lives until each point was cut, except for those in the ledger."""
    worker.training.trainer.use_threads(1)
    done_points = {
        (line["database"], line["act"], line["first"], "cuts_that_lost" in line)
        for line in ledger
        if "act" in line
    }
    for first in range(max(INTERVAL_BY_ACT.values())):
        for database, (act, every) in itertools.product(databases, INTERVAL_BY_ACT.items()):
            if first == 0 and (database, act, 1, True) not in done_points:
                yield cut_power(database, act, interval=every, first=1, limit=CONTROL_CUTS, syncs=False)
            if first < every and (database, act, first, False) not in done_points:
                yield cut_power(database, act, interval=every, first=first)


def _add(verdict: Verdict, addition: Verdict, prefix: str) -> None:
    for name, figure in asdict(addition).items():
        additional = [prefix + sentence for sentence in figure] if name == "sentences" else figure
        setattr(verdict, name, getattr(verdict, name) + additional)


def _copy_images(ground: Ground, images: dict[str, Path], name: str, mount_name: str) -> dict[str, Path]:
    copies = ground.images(name)
    for disk in ground.disks(images, mount_name):
        disk.copy(copies[disk.mount_point.name])
    return copies


def _undisturbed(ground: Ground, base: dict[str, Path], act: str) -> tuple[int, Record]:
    """Return the number of points of an act, and the record of the run that it trains."""
    images = _copy_images(ground, base, "whole", "base")
    count = ground.directory / "count"
    with ground.installed(images, "whole") as installation:
        _finish(_fork(lambda: _act(ground, installation, act, set(), count)), act)
        engine = open_engine(installation.settings.effective_database_url)
        reference: Record = {}
        if act == "training":
            with open_read_session(open_sessions(engine)) as session:
                run = session.query(Run).where(Run.seed == 1).one()
                assert run.status == "finished", run.reason
                reference = read_record(session, run.id)
        engine.dispose()
    for image in images.values():
        image.unlink()
    return int(count.read_text()), reference


def _life(ground: Ground, base: dict[str, Path], act: str, cut_points: set[int]) -> list[Cut]:
    """Play the act once, and return the state after each cut."""
    images, power_cuts = _copy_images(ground, base, "life", "base"), []
    note, count = ground.directory / "life.jsonl", ground.directory / "count"
    note.write_text("")
    with ground.installed(images, "life") as installation:
        child = _fork(lambda: _act(ground, installation, act, cut_points, count, note))
        while (status := os.waitpid(child, os.WUNTRACED)[1]) and os.WIFSTOPPED(status):
            power_cuts.append(_cut(ground, installation, act, images, note, len(power_cuts)))
            os.kill(child, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(status) == 0, f"{act} ended with {status}"
    return power_cuts


def _cut(
    ground: Ground, installation: Installation, act: str, images: dict[str, Path], note: Path, number: int
) -> Cut:
    """Return what the paused child has acknowledged, what a reader could see, and copies of the disks."""
    visible_rows: set[Row] = set()
    if act in OBSERVED_ACTS and (ground.database == "postgres" or _database(installation).exists()):
        engine = open_engine(installation.settings.effective_database_url)
        with suppress(OperationalError, ProgrammingError):  # not even a schema yet
            visible_rows = visible(open_sessions(engine))
        engine.dispose()
    notes = [json.loads(line) for line in note.read_text().splitlines()]
    with _still(ground.servers):
        copies = _copy_images(ground, images, f"cut{number}", "life")
    point = next((note_line[1] for note_line in reversed(notes) if note_line[0] == "point"), "")
    return Cut(point, copies, visible_rows, [note_line for note_line in notes if note_line[0] != "point"])


def _database(installation: Installation) -> Path:
    return Path(installation.url.removeprefix("sqlite:///") or installation.settings.state / "grpolab.db")


@contextmanager
def _still(pids: list[int]) -> Iterator[None]:
    """Stop these servers and all their children, each outside the kernel."""
    frozen = [
        process
        for pid in pids
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
    ]
    for process in frozen:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    for process in frozen:
        wait_for(lambda process=process: _stands(process), "a process stands still")  # type: ignore[misc]
    try:
        yield
    finally:
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _stands(process: psutil.Process) -> bool:
    try:
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    except psutil.NoSuchProcess:
        return True


def _check_cut(ground: Ground, power_cut: Cut, reference: Record) -> Verdict:
    """Mount the disks after the cut, start everything on them, and check the result."""
    answer = ground.directory / "answer"
    answer.unlink(missing_ok=True)
    fields: dict[str, Any]
    try:
        with ground.installed(power_cut.images, "cut") as installation:

            def check_installation() -> None:
                answer.write_text(
                    json.dumps(check(installation, power_cut.visible_rows, power_cut.acknowledged, reference))
                )

            _finish(_fork(check_installation), "check")
            fields = json.loads(answer.read_text())
    except AssertionError as error:  # Postgres does not start, or the check itself failed
        fields = asdict(Verdict(lost=1, sentences=[f"does not go on: {error}"]))
    for image in power_cut.images.values():
        image.unlink()
    return Verdict(**fields)


def _act(
    ground: Ground,
    installation: Installation,
    act: str,
    cut_points: set[int],
    count: Path,
    note: Path | None = None,
) -> None:
    """Play the act in the child, pausing at the points to cut."""
    visits = 0

    def say(*note_fields: Any) -> None:
        if note is not None:
            with note.open("a") as file:
                file.write(json.dumps(note_fields) + "\n")

    def visit(point: str) -> None:
        nonlocal visits
        if not (point.startswith("after ") or point.endswith(": commit")) or ": SELECT" in point:
            return
        if point.startswith("after ") and _is_statement(point):
            return
        visits += 1
        if visits - 1 in cut_points:
            say("point", point)
            os.kill(os.getpid(), signal.SIGSTOP)

    if not ground.syncs:
        _never_sync()
    failpoints.listen(visit, root=f"{installation.root}/")
    FUNCTION_BY_ACT[act](installation, say)
    visit("after the end: commit")
    count.write_text(str(visits))


def _is_statement(point: str) -> bool:
    """Return True if the point is a statement between commits, which promises nothing on disk."""
    statement = point.partition(": ")[2]
    return statement != "commit" and statement.split(maxsplit=1)[0] not in failpoints.FILE_OPERATIONS


def _never_sync() -> None:
    """Replace every sync by nothing, as on a machine whose disk loses data."""
    os.fsync = os.fdatasync = lambda *_: None
    event.listen(Pool, "checkout", _let_sqlite_forget)


def _let_sqlite_forget(dbapi: Any, *_: Any) -> None:
    if type(dbapi).__module__.startswith("sqlite3"):
        dbapi.execute("PRAGMA synchronous=OFF")


def _fork(task: Callable[[], None]) -> int:
    """Fork a process that does the work and returns its result as the exit code, with our output streams."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            task()
            code = 0
        except BaseException:  # noqa: BLE001 - a fork must not return
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def _finish(child: int, description: str) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, f"{description} ended with {code}"
