"""The export commands: `export`, `archive`, `push`, `serve-model`, `copy-checkpoints`.

Only the programs that they start import torch.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.durable_files import publish
from backend.base.errors import Conflict, FieldError, InvalidRequest, Unavailable
from backend.base.settings import Settings
from backend.base.trainer_module import run_trainer_module
from backend.catalog.policies.adapters import ADAPTER_CONFIG
from backend.exchange.archives.save import archive_run
from backend.exchange.exports.card import model_card
from backend.exchange.exports.facts import find_checkpoint, read_card_facts
from backend.storage.artifacts.copies import copy_missing
from backend.storage.artifacts.store import artifact_store
from backend.storage.engine import open_engine, open_read_session, open_read_session_at, open_sessions
from backend.storage.models import Checkpoint, Run

Engine = Literal["transformers", "vllm"]

MAX_LISTED = 5


class Source(NamedTuple):
    """The checkpoint that is exported, and its model card."""

    directory: Path
    name: str
    card: str


def find_run_id(session: Session, id_or_name: str) -> str:
    """Return the id of the run with this id or name; raise InvalidRequest if there is not exactly one."""
    query = select(Run.id).where((Run.id == id_or_name) | (Run.name == id_or_name), Run.deleting_at.is_(None))
    run_ids = session.scalars(query.order_by(Run.created_at).limit(MAX_LISTED + 1)).all()
    if id_or_name in run_ids:
        return id_or_name
    if len(run_ids) == 1:
        return run_ids[0]
    reason = f"several runs are called {id_or_name!r:.60}: {', '.join(run_ids[:MAX_LISTED])}"
    raise InvalidRequest([FieldError("run", reason if run_ids else f"there is no run {id_or_name!r:.60}")])


def find_source(settings: Settings, run: str, step: int | None) -> Source:
    """Return the checkpoint of a run at a step, or its newest; raise a GrpoLabError if there is none."""
    with open_read_session_at(settings.effective_database_url) as session:
        checkpoint = find_checkpoint(session, find_run_id(session, run), step)
        directory = settings.artifact_dir(checkpoint.run_id) / checkpoint.path
        card_facts = read_card_facts(session, checkpoint)
    try:
        is_there = directory.is_dir() or _fetch(settings, directory)
    except OSError as error:
        raise Unavailable(f"checkpoint {checkpoint.path} was not fetched: {error.strerror}") from None
    if not is_there:
        raise Conflict(f"checkpoint {checkpoint.path} is not on this machine: {directory} is missing")
    return Source(directory, card_facts.name, model_card(card_facts))


def _fetch(settings: Settings, directory: Path) -> bool:
    store = artifact_store(settings)
    return store is not None and store.fetch(directory)


def export_model(
    settings: Settings, run: str, target: Path, *, step: int | None, dtype: str | None
) -> Source:
    """Write the model of a checkpoint and its card to a new directory; raise a GrpoLabError."""
    source = find_source(settings, run, step)
    with tempfile.TemporaryDirectory(prefix="grpolab-export-") as scratch:
        card = Path(scratch) / "README.md"
        card.write_text(source.card)
        precision = ["--dtype", dtype] if dtype else []
        arguments = [str(source.directory), str(target), "--card", str(card), *precision]
        run_trainer_module(settings, "worker.checkpoints.export", arguments)
    return source


def archive_to(settings: Settings, run: str, target: Path, *, checkpoints: bool) -> tuple[int, list[str]]:
    """Write the archive of a run to a new file; return its size in bytes, and sentences about missing data.

    After an error, no file is left behind.
    """
    if target.exists():
        raise Conflict(f"{target} already exists: name a file that does not exist yet")
    engine = open_engine(settings.effective_database_url, pool_size=2)
    draft = target.with_name(f".{target.name}.draft")
    try:
        sessions = open_sessions(engine)
        with open_read_session(sessions) as session:
            run_id = find_run_id(session, run)
        with draft.open("wb") as file:
            content, missing_data = archive_run(sessions, settings, run_id, checkpoints=checkpoints)
            for block in content:
                file.write(block)
            size = file.tell()
        publish(draft, target)
    except OSError as error:
        raise Unavailable(f"no archive was written to {target}: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)
        engine.dispose()
    return size, missing_data


def copy_missing_checkpoints(settings: Settings, run: str) -> Iterator[tuple[str, bool]]:
    """Copy the checkpoints of a run, or of all runs, that the artifact store lacks.

    Yield lines, each with whether the copy succeeded; raise a GrpoLabError.
    """
    query = select(Checkpoint).order_by(Checkpoint.run_id, Checkpoint.step)
    with open_read_session_at(settings.effective_database_url) as session:
        if run:
            query = query.where(Checkpoint.run_id == find_run_id(session, run))
        checkpoints = list(session.scalars(query))
        session.expunge_all()
    lines = 0
    for line in copy_missing(settings, checkpoints):
        lines += 1
        yield line
    if not lines:
        yield f"all {len(checkpoints)} checkpoints are in the artifact store", True


def push_model(
    settings: Settings, directory: Path, repository: str, *, token: str, public: bool, allow_existing: bool
) -> str:
    """Upload an exported directory to the hub and return its address there; raise a GrpoLabError if that
    fails.

    The token is passed to the uploading process through a pipe, so that no command line or environment shows
    it.
    """
    if not settings.hf_online:
        raise Conflict("HF_ONLINE is off: set HF_ONLINE=1 to let this installation reach the hub")
    if not token:
        raise Conflict("no token: set HF_TOKEN, or run this in a terminal, which asks for it")
    if not (directory / "config.json").is_file():
        raise InvalidRequest([FieldError("directory", f"{directory} holds no exported model")])
    options = [*(["--public"] if public else []), *(["--existing"] if allow_existing else [])]
    return run_trainer_module(
        settings, "worker.checkpoints.push", [str(directory), repository, *options], secret=token
    )


def serving_command(directory: Path, engine: Engine, *, host: str, port: int) -> list[str]:
    """Return the command that serves a model with an OpenAI-compatible API; raise InvalidRequest."""
    if not (directory / "config.json").is_file():
        content = (
            "an adapter alone: export it first" if (directory / ADAPTER_CONFIG).is_file() else "no model"
        )
        raise InvalidRequest([FieldError("directory", f"{directory} holds {content}")])
    address = ["--host", host, "--port", str(port)]
    if engine == "vllm":
        return ["vllm", "serve", str(directory), *address]
    return ["transformers", "serve", str(directory), *address]


def find_program(command: list[str]) -> str:
    """Return the path of a program next to this Python or on PATH; raise Conflict if it cannot run."""
    installed_program = Path(sys.executable).with_name(command[0])
    program = str(installed_program) if installed_program.is_file() else shutil.which(command[0])
    if program is None:
        raise Conflict(f"{command[0]} is not installed here: run the line above where it is")
    if Path(program) == installed_program and command[0] == "transformers" and find_spec("openai") is None:
        raise Conflict("transformers serves with further packages: pip install 'transformers[serving]'")
    return program
