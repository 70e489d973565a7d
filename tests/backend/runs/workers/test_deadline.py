"""Tests of the deadlines of workers: clock times of a machine, and moments that have passed."""

import time
from datetime import datetime, timedelta, timezone

import pytest

from backend.runs.workers.arguments import arguments_as_settings
from backend.runs.workers.deadline import parse_deadline

ZONE = timezone(timedelta(hours=2))
NIGHT = datetime(2026, 11, 24, 3, 50, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("text", "day", "clock"),
    [
        ("03:55", 24, (3, 55)),
        ("23:10", 24, (23, 10)),
        ("3:40", 24, (3, 40)),  # ten minutes ago, so already missed
        ("2026-11-25T01:30", 25, (1, 30)),
        ("2026-11-25T01:30:00+00:00", 25, (3, 30)),
    ],
)
def test_a_deadline_is_a_local_moment(text, day, clock):
    deadline = parse_deadline(text, NIGHT)
    assert (deadline.day, (deadline.hour, deadline.minute)) == (day, clock)
    assert deadline.utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("text", ["25:00", "12:75", "soon", "", "3:5", "12:00:00 PM", "٠٣:٥٥"])
def test_an_invalid_time_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        parse_deadline(text, NIGHT)


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2040-01-15T12:00", "2040-01-15T11:00+00:00"),
        ("2040-07-15T12:00", "2040-07-15T10:00+00:00"),
        ("2040-07-15T12:00+00:00", "2040-07-15T12:00+00:00"),
    ],
)
def test_a_deadline_has_the_utc_offset_of_its_day(berlin, text, moment):
    """One of these two days has another UTC offset than today."""
    limits = arguments_as_settings(None, None, text, None)
    assert float(limits["WORKER_UNTIL"]) == datetime.fromisoformat(moment).timestamp()
