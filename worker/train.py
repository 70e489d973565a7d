"""The trainer process, which imports everything, reports that it is ready, waits for one run, and trains it.

    python -m worker.train
    stdout  {"ready": true}
    stdin   {"run_id": "...", "attempt": 1, "device": "cpu", "threads": 2, "database_url": "..."}

Standard input stays open as a lifeline: when it closes, the process exits immediately. SIGTERM requests a
checkpoint after the running step and an exit, and SIGUSR1 prints the stacks of all threads. With `--forks`
the process is the parent of trainer processes instead, see worker/forks.py.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from backend.base.errors import Fenced, GrpoLabError
from backend.base.logs import set_up_logging
from backend.base.redaction import learn_secrets
from backend.base.sandbox.layers import layer_names
from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.runs import lifecycle
from backend.service.monitoring.backlog import note_path
from backend.service.process.gc_freeze import freeze_gc
from backend.storage.artifacts.store import ArtifactFault, artifact_store
from backend.storage.engine import Sessions, open_engine, open_sessions
from backend.storage.models import Run
from worker.checkpoints.disk import DiskFault
from worker.db_retry import retry_transaction
from worker.forks import serve_forks
from worker.outcome import EXIT_FAILED, EXIT_FENCED, EXIT_ORPHANED, NodeLost, Outcome
from worker.recording.recorder import Recorder
from worker.training.lifeline import await_line, exit_at_end, failure_report

logger = logging.getLogger("worker.train")  # not __main__


class Assignment(NamedTuple):
    """The run that this process trains."""

    run_id: str
    attempt: int
    device: str
    threads: int
    database_url: str
    """URL of the database. It is not in the environment, which plugins of problems and rewards can read."""
    gpus: Sequence[str] = ()
    """UUIDs of the GPUs of all ranks on this node, if the run has several ranks."""
    node: dict[str, Any] | None = None
    """This node's entry in a group of nodes, see NodeGroup. `rank` 0 trains, and others follow with a
    `config`.
    """


def main() -> None:
    """Wait for a run and train it, then exit with a code for the supervisor."""
    if sys.argv[1:2] == ["--forks"]:
        _import_everything()
        _say({"ready": True})
        serve_forks(int(sys.argv[2]))  # this process is a fork from here on
    _log_lines()
    stopping = threading.Event()
    assigned = threading.Event()
    _listen_to_signals(stopping, assigned)
    _import_everything()
    _say({"ready": True})
    assignment = _await_assignment()
    assigned.set()
    threading.Thread(target=exit_at_end, name="lifeline", daemon=True).start()
    from worker.training.trainer import use_threads

    use_threads(assignment.threads)
    sys.exit(_exit_code(assignment, stopping))


def _import_everything() -> None:
    """Import torch, transformers and sandboxes in advance, because it takes seconds."""
    logging.disable(logging.WARNING)  # torchao warns about every kernel for other machines
    with freeze_gc():
        import_module("worker.training.trainer")
    logging.disable(logging.NOTSET)
    layer_names()  # tests the layers


def _log_lines() -> None:
    """Log as plain text, because the supervisor stores it as the run's log, which people read."""
    set_up_logging(Settings(), is_json=False)
    for chatty in (
        "torchao",
        "torch.utils._pytree",
    ):  # warnings during imports are not caused by a run
        logging.getLogger(chatty).setLevel(logging.ERROR)


def _listen_to_signals(stopping: threading.Event, is_assigned: threading.Event) -> None:
    def on_sigterm(_number: int, _frame: object) -> None:
        if not is_assigned.is_set():
            os._exit(EXIT_ORPHANED)
        stopping.set()

    signal.signal(signal.SIGTERM, on_sigterm)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _await_assignment() -> Assignment:
    return Assignment(**json.loads(await_line()))


def _exit_code(assignment: Assignment, stopping: threading.Event) -> int:
    try:
        if assignment.node is not None and assignment.node["rank"]:
            return _follow(assignment, assignment.node)
        train_run(assignment, stopping)
    except Fenced:
        return EXIT_FENCED
    except Exception as error:  # the only place that converts any failure to a reason
        logger.exception("the run fails")
        _say({"failed": failure_report(error)})
        return EXIT_FAILED
    return 0


def _follow(assignment: Assignment, node: dict[str, Any]) -> int:
    """Follow the trainer of another node. The loss of that trainer is not this node's failure."""
    from worker.policy.ranks import is_lost_peer
    from worker.training.follower import follow_on_node

    logger.info("node %d of a run on several", node["rank"])
    try:
        follow_on_node(node, device=assignment.device, threads=assignment.threads, gpus=assignment.gpus)
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
        return EXIT_ORPHANED
    return 0


def train_run(assignment: Assignment, stopping: threading.Event) -> None:
    """Train the run and write its outcome. Errors caused by the user become outcomes too."""
    settings = Settings().model_copy(update={"database_url": assignment.database_url})
    learn_secrets(settings)
    sessions = open_sessions(open_engine(settings.effective_database_url, pool_size=2))
    config, is_check = retry_transaction(sessions, lambda session: _read_run(session, assignment))
    location = f"{assignment.device}, {assignment.threads} thread{'s' if assignment.threads != 1 else ''}"
    logger.info(
        "attempt %d: %s, %d steps, on %s", assignment.attempt, config.policy.name, config.steps, location
    )
    recorder = Recorder(
        sessions,
        assignment.run_id,
        assignment.attempt,
        config=config,
        lease_seconds=settings.lease_seconds,
        note=note_path(settings, assignment.run_id),
    )
    with recorder:
        try:
            outcome = _train(config, recorder, settings, assignment, stopping, sessions, is_check=is_check)
        except Fenced:
            raise
        except NodeLost as error:
            outcome = Outcome("queued", str(error))
        except DiskFault as error:
            recorder.event("checkpoint", "error", error.detail)
            outcome = Outcome("paused", error.detail)
        except ArtifactFault as error:
            recorder.event("checkpoint", "error", error.detail)
            reason = f"{error.detail}; resume the run once it answers"
            outcome = Outcome("failed", error.detail) if is_check else Outcome("paused", reason)
        except GrpoLabError as error:
            outcome = Outcome("failed", error.detail)
    logger.info("%s %s", outcome.status, outcome.reason)
    # Write it only now, because the recorder stops if another attempt owns the run.
    retry_transaction(sessions, lambda session: _write_outcome(session, assignment, outcome))


def _train(
    config: RunConfig,
    recorder: Recorder,
    settings: Settings,
    assignment: Assignment,
    stopping: threading.Event,
    sessions: Sessions,
    *,
    is_check: bool,
) -> Outcome:
    from worker.checkpoints.fork import find_origin
    from worker.checkpoints.store import Checkpoints
    from worker.training.companions import joined_ranks
    from worker.training.launch_check import LaunchCheck
    from worker.training.node_group import NodeGroup
    from worker.training.trainer import Trainer

    checkpoints = Checkpoints(
        settings.artifact_dir(assignment.run_id),
        recorder,
        run_id=assignment.run_id,
        attempt=assignment.attempt,
        config=config,
        origin=recorder.read(lambda session: find_origin(session, assignment.run_id, settings)),
        artifacts=artifact_store(settings),
    )
    knobs: dict[str, Any] = {
        "settings": settings,
        "checkpoints": checkpoints,
        "device": assignment.device,
        "stopping": stopping,
    }
    if is_check:
        return LaunchCheck(config, recorder, **knobs).check()
    group = None
    if assignment.node is not None:
        owner = (assignment.run_id, assignment.attempt)
        group = NodeGroup(sessions, *owner, settings.state, assignment.node, stopping)
    with joined_ranks(
        config, device=assignment.device, threads=assignment.threads, gpus=assignment.gpus, group=group
    ) as ranks:
        return Trainer(config, recorder, **knobs, ranks=ranks).train()


def _read_run(session: Session, assignment: Assignment) -> tuple[RunConfig, bool]:
    """Return the run's config, and whether it is a launch check.

    Also record the package versions that this attempt trains with.
    """
    versions: dict[str, Any] = {name: version(name) for name in ("torch", "transformers")}
    versions["sandbox"] = layer_names()
    lifecycle.note_attempt(session, assignment.run_id, assignment.attempt, versions=versions)
    run = session.get_one(Run, assignment.run_id)
    return RunConfig.model_validate(run.config), run.check_hash is not None


def _write_outcome(session: Session, assignment: Assignment, outcome: Outcome) -> None:
    owner = (assignment.run_id, assignment.attempt)
    if outcome.status == "queued":
        lifecycle.release_run(session, *owner, outcome.reason)
    else:
        lifecycle.finish_run(
            session, *owner, outcome.status, outcome.reason, request=outcome.requested_action
        )


if __name__ == "__main__":
    main()
