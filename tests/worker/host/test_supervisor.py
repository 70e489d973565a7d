import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select, update

from backend.base.redaction import add_secrets
from backend.base.sandbox.process import Sandbox
from backend.base.settings import Settings
from backend.runs import lifecycle
from backend.runs.workers.devices import Slot
from backend.storage.models import Attempt, Event, LogChunk, Run
from tests.faults.processes import is_alive
from tests.waiting import wait_for
from worker.host import supervisor as module
from worker.host.hang_detector import HangLimits
from worker.host.spares import Spare
from worker.host.supervisor import Supervisor
from worker.host.trainer_process import MAX_LINE_BYTES, start_trainer, trainer_environment
from worker.outcome import REASON_CHARACTERS

TOY_TRAINER_PATH = Path(__file__).parent / "toy_trainer.py"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings(state_dir, sqlite_url):
    return Settings(state_dir=state_dir, database_url=sqlite_url, lease_seconds=4, grpolab_token="secret")


@pytest.fixture
def stopping():
    return threading.Event()


@pytest.fixture
def make_supervisor(settings, sessions, stopping, monkeypatch):
    """A function that makes the supervisor of a slot whose toy trainer behaves as named."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    supervisors = []

    def make(*behaviour, **options):
        argv = (sys.executable, str(TOY_TRAINER_PATH), *behaviour)
        slot = Slot(0, "cpu", "CPU", 1)
        supervisors.append(
            Supervisor(settings, sessions, slot, stopping, spare=Spare(settings, slot, argv), **options)
        )
        return supervisors[-1]

    yield make
    for supervisor in supervisors:
        supervisor.close()


def queue_run(sessions):
    with sessions.begin() as session:
        run = Run(name="toy", variant="", seed=0, config={}, config_hash="", steps=3, status="queued")
        session.add(run)
        session.flush()
        return run.id


def claim(sessions):
    with sessions.begin() as session:
        session.execute(update(Run).values(run_after=0.0))
        return lifecycle.claim_run(session, "worker", "host", lease_seconds=4)


def read(sessions, run_id):
    with sessions() as session:
        return session.get_one(Run, run_id)


def read_log(sessions, run_id):
    with sessions() as session:
        query = select(LogChunk.text).where(LogChunk.run_id == run_id).order_by(LogChunk.number)
        return "".join(session.scalars(query))


def supervise_in_thread(supervisor, claimed_run):
    thread = threading.Thread(target=supervisor.supervise, args=(claimed_run,))
    thread.start()
    return thread


def wait_for_pid(sessions, claimed_run):
    def pid():
        with sessions() as session:
            return session.get_one(Attempt, (claimed_run.run_id, claimed_run.attempt)).pid

    return wait_for(pid)


def has_steps(sessions, run_id):
    return lambda: read(sessions, run_id).last_step >= 1


def test_a_ready_spare_takes_the_run(make_supervisor, sessions):
    supervisor = make_supervisor("finish")
    supervisor.keep_spare()
    wait_for(lambda: supervisor.spare_is_ready)
    run_id = queue_run(sessions)
    spare_pid, claimed_run = supervisor._spare._process.pid, claim(sessions)
    supervisor.supervise(claimed_run)
    assert read(sessions, run_id).status == "finished"
    assert wait_for_pid(sessions, claimed_run) == spare_pid
    assert not supervisor.spare_is_ready


def test_output_is_kept_clean_and_in_order(make_supervisor, sessions):
    run_id = queue_run(sessions)
    make_supervisor("chatty").supervise(claim(sessions))
    log = read_log(sessions, run_id)
    assert "100%\n" in log
    assert "to stderr\n" in log
    assert "\x1b" not in log
    assert "ready" not in log


def test_the_trainer_sees_no_secret_of_the_service(make_supervisor, sessions, settings, monkeypatch):
    monkeypatch.setenv("GRPOLAB_TOKEN", "secret")
    monkeypatch.setenv("BROKER_URL", "redis://me:secret@host")
    run_id = queue_run(sessions)
    make_supervisor("finish").supervise(claim(sessions))
    assert '{"threads": "1", "token": null}' in read_log(sessions, run_id)
    environment = trainer_environment(settings, Slot(0, "cpu", "CPU", 1), os.environ)
    assert not {"GRPOLAB_TOKEN", "BROKER_URL"} & environment.keys()
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_a_lack_of_memory_is_retried_once(make_supervisor, sessions):
    run_id = queue_run(sessions)
    supervisor = make_supervisor("report")
    supervisor.supervise(claim(sessions))
    assert read(sessions, run_id).status == "queued"
    supervisor.supervise(claim(sessions))
    run = read(sessions, run_id)
    assert (run.status, run.reason) == ("failed", "OutOfMemoryError: CUDA out of memory")


def test_a_crash_counts_as_a_failure_of_the_trainer(make_supervisor, sessions):
    run_id = queue_run(sessions)
    make_supervisor("segfault").supervise(claim(sessions))
    run = read(sessions, run_id)
    assert (run.status, run.own_failures) == ("queued", 1)
    assert run.reason.startswith("the trainer crashed with SIGSEGV")


def test_an_end_without_an_outcome_counts_as_a_failure(make_supervisor, sessions):
    run_id = queue_run(sessions)
    make_supervisor("vanish").supervise(claim(sessions))
    run = read(sessions, run_id)
    assert (run.status, run.own_failures, run.reason) == ("queued", 1, "the trainer ended without a message")


def run_after_sigkill(toy, sessions):
    """Return the run as its supervisor leaves it after a SIGKILL of the trainer."""
    run_id = queue_run(sessions)
    claimed_run = claim(sessions)
    thread = supervise_in_thread(toy("long"), claimed_run)
    wait_for(has_steps(sessions, run_id))
    os.kill(wait_for_pid(sessions, claimed_run), signal.SIGKILL)
    thread.join()
    return read(sessions, run_id)


def test_a_run_whose_trainer_was_killed_from_outside_is_queued_without_a_failure(make_supervisor, sessions):
    run = run_after_sigkill(make_supervisor, sessions)
    assert (run.status, run.own_failures) == ("queued", 0)
    assert run.run_after > 0
    with sessions() as session:
        assert "SIGKILL" in session.scalars(select(Event.message).order_by(Event.id.desc())).first()


def test_a_trainer_killed_for_memory_counts_as_a_failure(make_supervisor, sessions, monkeypatch):
    counts = iter((3, 4))
    monkeypatch.setattr(module, "oom_kills", lambda: next(counts))
    run = run_after_sigkill(make_supervisor, sessions)
    assert (run.status, run.own_failures) == ("queued", 1)
    assert run.reason.startswith("the machine ran out of memory and the kernel ended the trainer")


def test_a_stopping_worker_asks_its_trainer_to_save_and_release(make_supervisor, sessions, stopping):
    run_id = queue_run(sessions)
    thread = supervise_in_thread(make_supervisor("long"), claim(sessions))
    wait_for(has_steps(sessions, run_id))
    stopping.set()
    thread.join(60)
    run = read(sessions, run_id)
    assert (run.status, run.reason, run.own_failures) == ("queued", "asked to stop", 0)


def test_a_trainer_that_ignores_the_request_is_ended_after_the_grace_period(
    make_supervisor, sessions, stopping, monkeypatch
):
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.5)
    run_id = queue_run(sessions)
    thread = supervise_in_thread(make_supervisor("deaf"), claim(sessions))
    wait_for(has_steps(sessions, run_id))
    stopping.set()
    thread.join(60)
    run = read(sessions, run_id)
    assert (run.status, run.own_failures, run.run_after < time.time() + 0.5) == ("queued", 0, True)


def test_a_second_stop_request_does_not_wait_for_a_checkpoint(
    make_supervisor, sessions, stopping, monkeypatch
):
    monkeypatch.setattr(module, "GRACE_SECONDS", 1e9)
    hurrying = threading.Event()
    run_id = queue_run(sessions)
    thread = supervise_in_thread(make_supervisor("deaf", hurrying=hurrying), claim(sessions))
    wait_for(has_steps(sessions, run_id))
    stopping.set()
    hurrying.set()
    thread.join()
    run = read(sessions, run_id)
    assert (run.status, run.own_failures) == ("queued", 0)
    assert run.reason == "the trainer was ended by SIGKILL: its worker was asked to end"


def test_the_lease_is_renewed_while_the_trainer_works(make_supervisor, sessions):
    run_id = queue_run(sessions)
    thread = supervise_in_thread(make_supervisor("long"), claim(sessions))
    wait_for(has_steps(sessions, run_id))
    first = read(sessions, run_id).lease_until
    wait_for(lambda: read(sessions, run_id).lease_until > first)
    with sessions.begin() as session:
        lifecycle.request_action(session, run_id, "stop")
    thread.join(60)
    assert read(sessions, run_id).status == "stopped"


def test_a_lost_lease_ends_the_trainer_and_leaves_the_run_unchanged(make_supervisor, sessions):
    run_id = queue_run(sessions)
    claimed_run = claim(sessions)
    thread = supervise_in_thread(make_supervisor("long"), claimed_run)
    wait_for(has_steps(sessions, run_id))
    pid = wait_for_pid(sessions, claimed_run)
    with sessions.begin() as session:
        session.execute(update(Run).values(attempt=7, worker_id="another"))
    thread.join(60)
    assert not thread.is_alive()
    assert not is_alive(pid)
    run = read(sessions, run_id)
    assert (run.status, run.attempt, run.worker_id) == ("running", 7, "another")


def test_child_processes_of_a_trainer_end_with_it(make_supervisor, sessions):
    run_id = queue_run(sessions)
    make_supervisor("child").supervise(claim(sessions))
    child = int(read_log(sessions, run_id).split("child ")[1].split()[0])
    assert not is_alive(child)


def test_a_trainer_ends_with_its_killed_supervisor(settings, sessions):
    queue_run(sessions)
    claimed_run = claim(sessions)
    program = f"""
import sys, threading
from backend.storage.engine import open_engine, open_sessions
from backend.runs.workers.devices import Slot
from backend.runs.lifecycle import Claim
from backend.base.settings import Settings
from worker.host.hang_detector import HangLimits
from worker.host.spares import Spare
from worker.host.supervisor import Supervisor
settings = Settings()
sessions = open_sessions(open_engine(settings.effective_database_url))
argv = (sys.executable, {str(TOY_TRAINER_PATH)!r}, "long")
slot = Slot(0, "cpu", "CPU", 1)
spare = Spare(settings, slot, argv)
supervisor = Supervisor(settings, sessions, slot, threading.Event(), spare=spare)
supervisor.supervise(Claim({claimed_run.run_id!r}, 1, {{}}))
"""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "STATE_DIR": str(settings.state),
        "DATABASE_URL": settings.database_url,
    }
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    wait_for(has_steps(sessions, claimed_run.run_id))
    pid = wait_for_pid(sessions, claimed_run)
    process.kill()
    process.wait()
    wait_for(lambda: not is_alive(pid))


def test_a_trainer_without_new_steps_prints_its_stacks_and_is_ended(make_supervisor, sessions):
    run_id = queue_run(sessions)
    hang_limits = HangLimits(
        min_silence_seconds=2, median_step_multiple=1, longest_silence_multiple=1, start_seconds=120
    )
    make_supervisor("hang", hang_limits=hang_limits).supervise(claim(sessions))
    run = read(sessions, run_id)
    assert (run.status, run.own_failures) == ("queued", 1)
    assert run.last_step > 0
    assert run.reason.startswith("hung: no step for ")
    assert "toy_trainer.py" in read_log(sessions, run_id)


def test_a_process_that_cannot_start_affects_nothing_else(settings, sessions, stopping):
    slot = Slot(0, "cpu", "CPU", 1)
    supervisor = Supervisor(
        settings, sessions, slot, stopping, spare=Spare(settings, slot, ("/nowhere/python",))
    )
    supervisor.keep_spare()
    run_id = queue_run(sessions)
    supervisor.supervise(claim(sessions))
    run = read(sessions, run_id)
    assert (run.status, run.own_failures) == ("queued", 0)
    assert run.reason.startswith("no trainer could be started: ")


def test_binary_or_endless_output_is_cut_and_shown(settings):
    program = r"""
import sys
out = sys.stdout.buffer
out.write(b"caf\xc3\xa9 \xff\x00\n")
out.write("\N{GRINNING FACE}".encode() * 2_500_000 + b"\n")
out.write(b"after\n")
out.flush()
sys.stderr.write("e" * 10_000_000)
"""
    lines = []
    trainer = start_trainer((sys.executable, "-c", program), os.environ)
    trainer.assign("r", 1, Slot(0, "cpu", "CPU", 1), lines.append, database_url="")
    assert trainer.wait(60) == 0
    trainer.kill()
    truncation_note = f"[{10_000_001 - MAX_LINE_BYTES:,} more bytes of this line are not kept]"
    faces = "\N{GRINNING FACE}" * (MAX_LINE_BYTES // 4)
    output = [line for line in lines if not line.startswith(("e", "[9,967,232 "))]
    assert output == ["café \\xff\0", faces, truncation_note, "after"]
    assert "e" * MAX_LINE_BYTES in lines
    assert len(trainer.last_error_line) == REASON_CHARACTERS


def test_a_secret_across_the_cut_of_a_long_line_is_removed(monkeypatch):
    add_secrets("canary-of-a-long-line")
    program = f"print('x' * ({MAX_LINE_BYTES} - 9) + 'canary-of-a-long-line' + 'y' * 5000)"
    lines = []
    trainer = start_trainer((sys.executable, "-c", program), os.environ)
    trainer.assign("r", 1, Slot(0, "cpu", "CPU", 1), lines.append, database_url="")
    assert trainer.wait(60) == 0
    trainer.kill()
    assert lines[0].endswith("xxx[secret]y")
    assert "bytes of this line are not kept" in lines[1]


def test_a_trainer_gets_no_token_that_it_does_not_need(settings):
    variables = {
        "GRPOLAB_TOKEN": "t",
        "BROKER_URL": "b",
        "HF_TOKEN": "h",
        "SOME_API_KEY": "k",
        "PATH": "/bin",
    }
    variables["DATABASE_URL"] = "postgresql://me:canary@db/lab"
    slot = Slot(0, "cpu", "CPU", 1)
    server_settings = settings.model_copy(update={"database_url": variables["DATABASE_URL"]})
    offline = trainer_environment(server_settings, slot, variables)
    assert not set(offline) & {"GRPOLAB_TOKEN", "BROKER_URL", "HF_TOKEN", "SOME_API_KEY", "DATABASE_URL"}
    assert "canary" not in str(offline)
    online = trainer_environment(settings.model_copy(update={"hf_online": True}), slot, variables)
    assert online["HF_TOKEN"] == "h"


def test_only_the_trainer_gets_reward_server_settings_and_not_its_sandbox(settings, monkeypatch):
    server_settings = {
        "judge_url": "http://h/v1",
        "judge_model": "m",
        "judge_api_key": "canary",
        "engine_api_key": "canary",
        "openenv_urls": "maze=http://h",
        "openenv_keys": "maze=canary",
    }
    slot = Slot(0, "cpu", "CPU", 1)
    environment = trainer_environment(settings.model_copy(update=server_settings), slot, {})
    assert environment["JUDGE_API_KEY"] == environment["ENGINE_API_KEY"] == "canary"
    assert environment["OPENENV_KEYS"] == "maze=canary"
    for name, variable in environment.items():
        monkeypatch.setenv(name, variable)
    assert "canary" not in str(Sandbox("worker.rewards.judging")._environment("/scratch"))
