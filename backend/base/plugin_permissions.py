"""Permissions that an operator grants to individual reward plugins. A plugin has none by default."""

from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, field_validator

from backend.base.documented import StrictNumbers


class Permissions(StrictNumbers):
    """The permissions of a sandboxed process, in addition to reading the code that it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    network: bool = False
    """Whether it may open network connections."""

    processes: bool = False
    """Whether it may start programs. They have the same restrictions and are killed after the call."""

    variables: tuple[str, ...] = ()
    """Names of the environment variables that it can read."""

    directories: tuple[Path, ...] = ()
    """Absolute paths of directories that it may read."""

    memory_gb: Annotated[float, Field(gt=0, le=100_000)] = 8.0
    """Address space of each of its processes, in units of 2**30 bytes."""

    @field_validator("directories")
    @classmethod
    def _are_absolute(cls, directories: tuple[Path, ...]) -> tuple[Path, ...]:
        for path in directories:
            if not path.is_absolute():
                raise ValueError(f"expected an absolute path, got {str(path)!r}")
        return directories
