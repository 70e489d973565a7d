"""Tests of *What if* processes: one at a time per role, each with a memory limit."""

import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

from backend.base.errors import Unavailable
from backend.rollouts import api
from backend.rollouts import what_if as module
from backend.rollouts.what_if import OPERATOR_ALLOWANCE, VIEWER_ALLOWANCE, _run_process
from tests.api_client import VIEWER_TOKEN


def test_a_viewer_gets_the_viewer_allowance(client, monkeypatch):
    allowances = []
    monkeypatch.setattr(api, "require_run", lambda *_: None)

    def computing(_session, _order, allowance):
        allowances.append(allowance)
        return {}

    monkeypatch.setattr(api, "compute_what_if", computing)
    order = {"run": "0" * 26, "step": 1, "variants": []}
    for headers in ({}, {"Authorization": f"Bearer {VIEWER_TOKEN}"}):
        assert client.post("/api/v1/rollouts/what-if", json=order, headers=headers).status_code == 200
    assert allowances == [OPERATOR_ALLOWANCE, VIEWER_ALLOWANCE]


def test_viewers_compute_one_step_at_a_time_in_half_the_memory_without_delaying_operators(monkeypatch):
    memory_limits = []

    def run(argv, **_):
        memory_limits.append(argv[-1])
        return SimpleNamespace(returncode=0, stdout=b"")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 0.01)
    values = {"mask": np.zeros((1, 1), np.float32)}
    with VIEWER_ALLOWANCE.turn:
        with pytest.raises(Unavailable, match="another step is being computed"):
            _run_process({}, values, VIEWER_ALLOWANCE)
        _run_process({}, values, OPERATOR_ALLOWANCE)
    _run_process({}, values, VIEWER_ALLOWANCE)
    assert memory_limits == ["6000000000", "3000000000"]
