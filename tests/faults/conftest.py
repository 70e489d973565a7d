"""What the fault tests share: the parent that forks their trainers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import warm_parent


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    """Socket of this test process's parent of forked trainers."""
    with warm_parent() as socket:
        yield socket
