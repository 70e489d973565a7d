"""Test that runs of a backup taken during training continue after a restore and end bit-equal."""

import signal

import pytest

from backend.service.backup.contents import read_manifest, verify
from backend.service.backup.restore import RESTORED_REASON, restore_backup
from backend.service.backup.save import save_backup
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.engine import reading
from tests.faults.audit import audit
from tests.faults.campaign import configs
from tests.faults.plant import Kind, Plant
from tests.faults.verdict import record_of
from tests.waiting import wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


def stop_everything(plant):
    plant.reconciler.stop()
    for process in plant.alive():
        process.send_signal(signal.SIGTERM)
        process.wait()
    plant.engine.dispose()


def records(plant, run_ids):
    with reading(plant.sessions) as session:
        return [record_of(session, run_id) for run_id in run_ids]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_runs_of_a_restored_backup_end_bit_equal(warm, database, tmp_path):
    with Plant(Kind(database, "filesystem"), warm, workers=1, lease_seconds=30) as plant:
        run_ids = plant.queue(configs(2, steps=20))
        wait_for(lambda: all(plant.read(run_id).last_step >= 5 for run_id in run_ids), "both runs train")
        saved = save_backup(plant.settings, tmp_path / "backup")
        assert saved.missing == []
        assert saved.manifest.checkpoints >= 2
        plant.wait_until_ended(run_ids)
        uninterrupted = records(plant, run_ids)
        stop_everything(plant)

        restore_backup(plant.settings, tmp_path / "backup", overwrite=True)
        assert audit(plant.sessions, plant.settings.state) == []
        waiting = [plant.read(run_id) for run_id in run_ids]
        assert [(run.status, run.reason) for run in waiting] == [("queued", RESTORED_REASON)] * 2
        assert all(5 <= run.last_step < run.steps for run in waiting)
        plant.engine.dispose()
        plant.reconciler = Reconciler(plant.settings, plant.sessions)
        plant.reconciler.start()
        plant.start_worker()
        plant.wait_until_ended(run_ids)
        assert audit(plant.sessions, plant.settings.state) == []
        assert records(plant, run_ids) == uninterrupted
        assert [plant.read(run_id).attempt for run_id in run_ids] == [2, 2]
    verify(tmp_path / "backup", read_manifest(tmp_path / "backup"))  # training has not changed it
