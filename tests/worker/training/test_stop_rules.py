"""Tests of requests that end a run, from the worker, the user or a search."""

import threading

import pytest

from backend.runs.lifecycle import PRUNED_REASON
from worker.outcome import Outcome
from worker.training.stop_rules import request_to_end


@pytest.mark.parametrize(
    ("requested_action", "outcome"),
    [
        ("", None),
        ("stop", Outcome("stopped", "stopped by the user", "stop")),
        ("pause", Outcome("paused", "paused by the user", "pause")),
        ("prune", Outcome("stopped", PRUNED_REASON, "prune")),
    ],
)
def test_a_request_ends_a_run_in_its_way(requested_action, outcome):
    assert request_to_end(threading.Event(), requested_action) == outcome


def test_a_stopping_worker_releases_the_run_despite_other_requests():
    stopping = threading.Event()
    stopping.set()
    assert request_to_end(stopping, "prune") == Outcome("queued", "the worker was asked to stop")
