"""Pass rates that an earlier run measured, stored in DATASETS_DIR under the hash of their content.

A config refers to that hash, so the earlier run is not needed anymore after they are stored.
"""

from functools import lru_cache
from hashlib import blake2b
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Annotated

from pydantic import Field

from backend.config.base import Frozen

UPLOADS_DIRECTORY = "uploads"

Rate = Annotated[float, Field(ge=0, le=1)]


class PassRates(Frozen):
    """The pass rates of the training prompts of a run."""

    run: str
    """Id of the run that measured them."""

    run_name: str
    """Name of the run when the pass rates were stored."""

    last_step: Annotated[int, Field(ge=0)]
    """Last step that is included."""

    by_id: dict[str, Rate]
    """Fraction of right completions, by the prompt id in rollouts."""

    by_text: dict[str, Rate]
    """Pass rates by a hash of the prompt's text, for a source that has been renamed."""

    def rate(self, prompt_id: str, text: str) -> float | None:
        """Return the pass rate of a prompt, or None if the run did not sample it or could not grade it."""
        rate = self.by_id.get(prompt_id)
        return self.by_text.get(text_key(text)) if rate is None else rate


def text_key(text: str) -> str:
    """Return the hash of a prompt's text, which does not depend on the name of its source."""
    return blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def rates_path(datasets_dir: Path, sha256: str) -> Path:
    """Return the path of stored pass rates."""
    return datasets_dir.expanduser().absolute() / UPLOADS_DIRECTORY / f"{sha256}.rates"


def read_rates(datasets_dir: Path, sha256: str) -> PassRates:
    """Load stored pass rates. Raises ValueError if they are missing or their content has changed."""
    path = rates_path(datasets_dir, sha256)
    try:
        status = path.stat()
        return _read_cached(path, sha256, status.st_size, status.st_mtime_ns)
    except OSError as error:
        reason = f"there are no stored pass rates {sha256[:12]} ({error.strerror}): choose the run again"
        raise ValueError(reason) from None


@lru_cache(maxsize=4)
def _read_cached(path: Path, sha256: str, _size: int, _changed: int) -> PassRates:
    content = path.read_bytes()
    if sha256_of(content).hexdigest() != sha256:
        raise ValueError(f"the stored pass rates {sha256[:12]} have changed since: choose the run again")
    return PassRates.model_validate_json(content)
