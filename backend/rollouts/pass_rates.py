"""Store the pass rates of a run's training prompts, by which later runs can select rows."""

import os
import tempfile
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Annotated

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.documented import Documented
from backend.base.durable_files import make_directory, publish
from backend.base.errors import Conflict
from backend.base.text import clean_text
from backend.config.pass_rates import PassRates, rates_path, text_key
from backend.rollouts.atlas import load_atlas, load_prompts
from backend.rollouts.packing import try_unpack_text
from backend.storage.models import Run


class RatesOrder(Documented):
    """A request to store the pass rates of a run."""

    run: Annotated[str, Field(min_length=1, max_length=64)]


class StoredRates(Documented):
    """Stored pass rates that a config may refer to."""

    sha256: str
    """Hash of the pass rates, which is the value of `data.pass_rates`."""
    run: str
    run_name: str
    """Name of the run when the pass rates were stored."""
    last_step: int
    prompts: int


def load_rates(session: Session, run_id: str) -> PassRates:
    """Return the pass rate of every training prompt with graded completions, over all its completions.

    Raise Conflict if there are no such prompts.
    """
    atlas = load_atlas(session, run_id, state=None, sort="first")
    by_id = {prompt.id: prompt.rate for prompt in atlas.prompts if prompt.rate is not None}
    name = session.scalars(select(Run.name).where(Run.id == run_id)).one()
    if not by_id:
        raise Conflict(f"{name!r} has no training prompts with graded completions")
    texts = load_prompts(session, run_id, list(by_id))
    prompt_by_id = {prompt_id: try_unpack_text(text.prompt) for prompt_id, text in texts.items()}
    by_text = {
        text_key(text): by_id[prompt_id] for prompt_id, (text, damage) in prompt_by_id.items() if not damage
    }
    return PassRates(
        run=run_id,
        run_name=clean_text(name),
        last_step=atlas.last_step,
        by_id=dict(sorted(by_id.items())),
        by_text=dict(sorted(by_text.items())),
    )


def store_rates(rates: PassRates, datasets_dir: Path) -> StoredRates:
    """Write the pass rates to a file named by their hash; raise OSError if that fails."""
    content = rates.model_dump_json().encode()
    sha256 = sha256_of(content).hexdigest()
    path = rates_path(datasets_dir, sha256)
    make_directory(path.parent, mode=0o750)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".rates-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        publish(Path(draft), path)
    finally:
        Path(draft).unlink(missing_ok=True)
    return describe_rates(sha256, rates)


def describe_rates(sha256: str, rates: PassRates) -> StoredRates:
    """Return the summary of stored pass rates."""
    return StoredRates(
        sha256=sha256,
        run=rates.run,
        run_name=rates.run_name,
        last_step=rates.last_step,
        prompts=len(rates.by_id),
    )
