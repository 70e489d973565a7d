"""Test that runs of a backup taken during training continue after a restore and end bit-equal."""

import signal

import pytest

from backend.service.backup.contents import read_manifest, verify
from backend.service.backup.restore import RESTORED_REASON, restore_backup
from backend.service.backup.save import save_backup
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.engine import open_read_session
from tests.faults.audit import audit
from tests.faults.campaign import configs
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.verdict import read_record
from tests.waiting import wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


def stop_everything(installation):
    installation.reconciler.stop()
    for process in installation.alive():
        process.send_signal(signal.SIGTERM)
        process.wait()
    installation.engine.dispose()


def records(installation, run_ids):
    with open_read_session(installation.sessions) as session:
        return [read_record(session, run_id) for run_id in run_ids]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_runs_of_a_restored_backup_end_bit_equal(warm, database, tmp_path):
    with FaultyInstallation(Kind(database, "filesystem"), warm, workers=1, lease_seconds=30) as installation:
        run_ids = installation.queue(configs(2, steps=20))
        wait_for(
            lambda: all(installation.read(run_id).last_step >= 5 for run_id in run_ids), "both runs train"
        )
        report = save_backup(installation.settings, tmp_path / "backup")
        assert report.missing == []
        assert report.manifest.checkpoints >= 2
        installation.wait_until_ended(run_ids)
        uninterrupted_records = records(installation, run_ids)
        stop_everything(installation)

        restore_backup(installation.settings, tmp_path / "backup", overwrite=True)
        assert audit(installation.sessions, installation.settings.state) == []
        waiting_runs = [installation.read(run_id) for run_id in run_ids]
        assert [(run.status, run.reason) for run in waiting_runs] == [("queued", RESTORED_REASON)] * 2
        assert all(5 <= run.last_step < run.steps for run in waiting_runs)
        installation.engine.dispose()
        installation.reconciler = Reconciler(installation.settings, installation.sessions)
        installation.reconciler.start()
        installation.start_worker()
        installation.wait_until_ended(run_ids)
        assert audit(installation.sessions, installation.settings.state) == []
        assert records(installation, run_ids) == uninterrupted_records
        assert [installation.read(run_id).attempt for run_id in run_ids] == [2, 2]
    verify(tmp_path / "backup", read_manifest(tmp_path / "backup"))  # training has not changed it
