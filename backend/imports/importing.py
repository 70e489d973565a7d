"""An import from the file to the run: read, plan, name, store."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import PurePath
from typing import IO

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.db.engine import Sessions, reading
from backend.db.models import Experiment, Run
from backend.db.text import clean_text
from backend.errors import FieldError, InvalidRequest, Unavailable
from backend.http.idempotency import digest_of, made_before
from backend.imports.formats import FORMATS, read_log
from backend.imports.plan import Plan, plan_import
from backend.imports.schemas import ImportAnswer, report_of
from backend.imports.store import Names, store_run
from backend.imports.table import BadLog
from backend.redaction import redact
from backend.sandbox.process import Unusable

MOST_NAME = 180
"""Characters of a name that the log gives; a number may follow."""

_one_at_a_time = threading.Lock()
"""Reading takes a whole processor and much memory: whoever imports second waits."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Wishes of the user for a log; everything but the file's name may be left to the guesses."""

    file: str
    """Name of the file: a label, never a path."""
    format: str = ""
    name: str = ""
    experiment: str = ""
    variant: str = ""
    seed: int | None = None
    step: str | None = None
    """Column of steps, or ROW_NUMBER; None: it is guessed."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False


def import_log(sessions: Sessions, file: IO[bytes], request: ImportRequest, *, key: str = "") -> ImportAnswer:
    """Make a run of a log, or with `dry_run` only the report of it.

    Raises InvalidRequest for a file that cannot be imported; nothing is stored then.
    """
    format_name, plan = _plan(file, request)
    digest = digest_of([request.file, request.name, request.experiment, request.variant, _content(plan)])
    report = report_of(plan, format_name)
    with reading(sessions) as session:
        names = _names(session, plan, request)
        made = None if request.dry_run else made_before(session, key, digest)
    if made is None and not request.dry_run:
        with sessions.begin() as session:
            made = store_run(session, plan, names, key=key, digest=digest)
            # None: somebody with the same key was quicker by a moment.
            made = made or made_before(session, key, digest)
    return ImportAnswer(
        run=made,
        name=names.run,
        experiment=names.experiment,
        variant=names.variant,
        seed=names.seed,
        report=report,
    )


def _plan(file: IO[bytes], request: ImportRequest) -> tuple[str, Plan]:
    if request.format and request.format not in FORMATS:
        reason = f"is {request.format!r:.40}; any of {', '.join(FORMATS)} are expected"
        raise InvalidRequest([FieldError("format", reason)])
    try:
        with _one_at_a_time:
            format_name, log = read_log(file, request.format or None)
            return format_name, plan_import(log, step=request.step, mapping=request.mapping)
    except BadLog as error:
        raise InvalidRequest([FieldError("file", f"{request.file} {error}")]) from None
    except Unusable as error:
        raise Unavailable(
            f"binary logs are read in the sandbox, which does not start here: {error}"
        ) from None


def _content(plan: Plan) -> str:
    """What tells the points of two logs apart."""
    digest = sha256()
    for name, series in plan.series.items():
        digest.update(name.encode() + series.steps.tobytes() + series.values.tobytes())
    return digest.hexdigest()


def _names(session: Session, plan: Plan, request: ImportRequest) -> Names:
    facts = plan.log.facts
    experiment = request.experiment or request.file
    wanted = redact(clean_text(facts.name)) or clean_text(PurePath(request.file).stem)
    name = request.name or _free_name(session, wanted[:MOST_NAME], experiment)
    seed = request.seed if request.seed is not None else facts.seed
    return Names(
        run=name,
        experiment=experiment,
        variant=request.variant or name,
        seed=seed if seed is not None and 0 <= seed < 2**31 else 0,
        file=request.file,
    )


def _free_name(session: Session, wanted: str, experiment: str) -> str:
    """The name, numbered where a run of this experiment has it: two logs are not taken for two seeds."""
    query = select(Run.name, Run.variant).join(Experiment, Experiment.id == Run.experiment_id)
    rows = session.execute(query.where(Experiment.name == experiment)).all()
    taken = {name for row in rows for name in row}
    numbered = (f"{wanted} {number}" for number in count(2))
    return wanted if wanted not in taken else next(name for name in numbered if name not in taken)
