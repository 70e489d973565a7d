"""Stand-ins for a recorder and checkpoints, for benchmarks in which a trainer stores nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from worker.recording.records import StepRecord


class NullRecorder:
    """A recorder and control that store nothing and request nothing."""

    run_id = requested_action = ""
    attempt = 0

    def begin(self, _step: int | None, /) -> None: ...

    def record_step(self, record: StepRecord) -> None: ...

    def event(self, *_args: object, **_kwargs: object) -> None: ...

    def verdict(self, *_args: object) -> None: ...

    def show_life(self, *_args: object) -> None: ...

    def read(self, _query: object) -> dict[str, Any]:
        """Return an empty record."""
        return {}

    def pay(self, _cost: float, /) -> None: ...

    def flush(self) -> None: ...

    @contextmanager
    def allow_writes(self) -> Iterator[None]:
        """Do nothing between two steps."""
        yield

    def restore(self, *_args: object) -> None: ...

    def save(self, *_args: object, **_kwargs: object) -> None: ...

    def finish(self) -> None: ...
