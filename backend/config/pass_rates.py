"""Pass rates that an earlier run measured, kept as a file of DATASETS_DIR under the hash of its content.

A run names that hash, so nothing depends on the earlier run once they are stored.
"""

from functools import lru_cache
from hashlib import blake2b
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Annotated

from pydantic import Field

from backend.config.base import Frozen

DIRECTORY = "uploads"

Rate = Annotated[float, Field(ge=0, le=1)]


class PassRates(Frozen):
    """The pass rates of a run's training prompts."""

    run: str
    """Id of the run that measured them."""

    run_name: str
    """Name of the run when the pass rates were taken."""

    last_step: Annotated[int, Field(ge=0)]
    """The newest step that counts."""

    by_id: dict[str, Rate]
    """Share of right completions by the id that rollouts have for the prompt."""

    by_text: dict[str, Rate]
    """Pass rates by a hash of the prompt's text, for a source that was renamed."""

    def rate(self, prompt_id: str, text: str) -> float | None:
        """Return the pass rate of a prompt; None if the run did not sample it, or could not grade it."""
        rate = self.by_id.get(prompt_id)
        return self.by_text.get(text_key(text)) if rate is None else rate


def text_key(text: str) -> str:
    """Hash by which prompts are found whatever their source is called."""
    return blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def rates_path(datasets_dir: Path, sha256: str) -> Path:
    """Return the place of stored pass rates."""
    return datasets_dir.expanduser().absolute() / DIRECTORY / f"{sha256}.rates"


def read_rates(datasets_dir: Path, sha256: str) -> PassRates:
    """Load stored pass rates. Raises ValueError if they are missing or not the ones that were stored."""
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
