"""Test of machines that are lost with their disks: runs continue from the artifact store."""

import os
import random

import pytest
from sqlalchemy import select

from backend.storage.artifacts.store import artifact_store
from backend.storage.engine import open_read_session
from backend.storage.models import Run
from tests.faults.campaign import Round, configs, reach_verdict, references
from tests.faults.chaos import Chaos
from tests.faults.plant import FaultyInstallation, Kind

LOSS_COUNT = int(os.environ.get("GRPOLAB_MACHINES", "2"))
"""Number of lost machines; 20 take ten minutes."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize("storage", ["s3", pytest.param("file", marks=pytest.mark.nightly)])
def test_runs_of_lost_machines_end_bit_equal(request, warm, storage, tmp_path):
    url = request.getfixturevalue("s3") if storage == "s3" else f"file://{tmp_path}/share"
    faults = ["machine_lost"] * LOSS_COUNT + ["trainer_killed"] * LOSS_COUNT
    random.shuffle(faults)
    with FaultyInstallation(Kind("sqlite", "valkey"), warm, artifacts_url=url) as installation:
        run_configs = configs(3)
        expected = references(installation, run_configs)
        chaos, expected_records = Chaos(installation, random.randrange(10**9)), {}
        while faults:
            run_ids = installation.queue(run_configs)
            expected_records |= dict(zip(run_ids, expected, strict=True))
            chaos.storm(run_ids, faults)
        store = artifact_store(installation.settings)
        with open_read_session(installation.sessions) as session:
            run_ids = list(session.scalars(select(Run.id)))
        for run_id in run_ids:  # the remaining disk only has what the last machine wrote
            names = {row.path for row in chaos.rows(run_id)}
            assert store.list_copies(run_id) == dict.fromkeys(names, True)
            assert all(store.fetch(installation.settings.artifact_dir(run_id) / name) for name in names)
        verdict = reach_verdict(installation, chaos, expected_records)
    assert verdict.sentences == []
    assert Round(installation.kind, 0, chaos.counts, verdict, 0.0).is_clean
    assert chaos.counts["machine_lost"] == LOSS_COUNT
