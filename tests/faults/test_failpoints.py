"""Tests of death by kill -9 at statements, commits and file operations (row 2 of the fault plan).

The short form dies at a sample of the points, and `make faults FORMS=deaths` at every one."""

import pytest

from tests.faults.deaths import die_at, discover, is_certain
from tests.faults.plant import Kind

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

SAMPLE_SIZE = 4


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def test_a_process_may_die_at_any_statement(warm, database):
    kind = Kind(database, "filesystem")
    points_by_role = discover(kind, warm)
    assert min(len(points) for points in points_by_role.values()) >= 25
    for role, points in points_by_role.items():
        certain = [point for point in points if is_certain(point)]
        played_round, missed_points = die_at(
            kind, warm, role, certain[:: len(certain) // SAMPLE_SIZE][:SAMPLE_SIZE]
        )
        assert played_round.verdict.sentences == []
        assert played_round.is_clean, played_round.line()
        assert missed_points == []
        assert played_round.faults["failpoint"] == SAMPLE_SIZE
