"""Tests of the hours and cost of a run, which are computed from its attempts."""

import pytest

from backend.runs import lifecycle
from backend.runs.cost import sum_cost
from backend.runs.store import find_run
from backend.storage.models import Attempt
from tests.factories import make_run


def attempt(started_at, ended_at, device="cuda:0", price=None, currency=None, judge_cost=None):
    prices = {"slot_price": price, "currency": currency, "judge_cost": judge_cost}
    return Attempt(started_at=started_at, ended_at=ended_at, device=device, **prices)


def test_attempts_add_up():
    attempts = [
        attempt(0, 1800, price=4.0, currency="USD"),
        attempt(3600, 5400, device="cpu", price=1.0, currency="EUR"),
        attempt(7200, None, price=4.0, currency="USD"),
        attempt(9000, 9000),
    ]
    cost = sum_cost(attempts, now=9000)
    assert cost["slot_hours"] == pytest.approx(1.5)
    assert cost["gpu_hours"] == pytest.approx(1.0)
    assert cost["money"] == pytest.approx({"USD": 4.0, "EUR": 0.5})


def test_judges_count_towards_the_cost_of_each_attempt():
    """One slot has no price, one has both prices, and the currency of one is unknown."""
    cost = sum_cost(
        [
            attempt(0, 3600, currency="EUR", judge_cost=0.25),
            attempt(3600, 7200, price=2.0, currency="EUR", judge_cost=0.5),
            attempt(7200, 10800, price=4.0, currency="USD"),
            attempt(7200, 10800, judge_cost=9.0),
        ],
        now=0,
    )
    assert cost["money"] == pytest.approx({"EUR": 2.75, "USD": 4.0})
    assert cost["judges"] == pytest.approx({"EUR": 0.75})


def test_a_run_shows_the_price_of_its_slot(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        lifecycle.claim_run(session, "w", "h", slot_price=2.5, currency="EUR")
    with database.sessions() as session:
        found_run = find_run(session, run.id)
    assert (found_run["attempts"][0]["slot_price"], found_run["attempts"][0]["currency"]) == (2.5, "EUR")
    assert found_run["cost"]["money"]["EUR"] >= 0
    assert found_run["cost"]["gpu_hours"] == 0
