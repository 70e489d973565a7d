"""A service with the datasets of the suite: sums, and damaged copies of them."""

import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common.service import Service
from benchmarks.common.sums import sums_rows, write_rows

ROWS_BY_SPLIT = {"train": 2000, "eval": 1024}


@contextmanager
def service_with_problems() -> Iterator[Service]:
    """Yield a ready service in a temporary directory, which SIGTERM stops in order."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="grpolab-suite-") as state:
        data_directory = Path(state) / "data"
        data_directory.mkdir()
        write_problems(data_directory)
        service = Service(state, DATASETS_DIR=str(data_directory))
        try:
            service.wait()
            yield service
        finally:
            service.stop()


def write_problems(folder: Path) -> None:
    """Write sums as a file, and copies whose training answers are wrong or contained in the prompt."""
    rows = sums_rows(ROWS_BY_SPLIT)
    write_rows(folder / "sums.jsonl", rows)
    for share in (60, 80, 100):
        write_rows(folder / f"wrong_{share}.jsonl", [_wrong(row, share) for row in rows])
        write_rows(folder / f"leaked_{share}.jsonl", [_leaked(row, share) for row in rows])


def _is_spared(row: dict[str, str], share: int, chance: random.Random) -> bool:
    """Return True if a row stays unchanged, as held-out rows do."""
    return row["split"] == "eval" or chance.randrange(100) >= share


def _leaked(row: dict[str, str], share: int) -> dict[str, str]:
    """Return training rows whose prompt ends with the answer, such as `65+82+80=227`."""
    if _is_spared(row, share, random.Random(row["prompt"])):
        return row
    return row | {"prompt": row["prompt"].removesuffix("?") + row["answer"]}


def _wrong(row: dict[str, str], share: int) -> dict[str, str]:
    """Return training rows with a different number as answer, and held-out rows unchanged."""
    chance = random.Random(row["prompt"])
    if _is_spared(row, share, chance):
        return row
    return row | {"answer": str(int(row["answer"]) + chance.randrange(1, 50))}
