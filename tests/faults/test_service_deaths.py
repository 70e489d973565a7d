"""Test of the death of the service under its clients, without loss or duplicates (row 4 of the fault
plan).

The short form kills it twice on each database; the long form is `make faults FORMS=services`."""

import pytest

from tests.faults.service_deaths import kill_service


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_requests_interrupted_by_the_death_of_the_service_can_be_repeated(database):
    played_round = kill_service(database, seed=1, times=2)
    assert played_round.verdict.sentences == []
    assert played_round.is_clean, played_round.line()
    assert played_round.measured["cut"] >= 2  # the stream, each time
