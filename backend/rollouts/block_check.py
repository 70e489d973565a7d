"""Check all stored blocks of completions, for `make doctor` and backups."""

import math
import time
from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.storage.completion_codec import CompletionsDamaged, decode
from backend.storage.models import RolloutGroup

GROUPS_AT_ONCE = 500


def find_damaged_groups(session: Session, *, deadline: float = math.inf) -> Iterator[str]:
    """Yield a sentence about each group whose stored bytes are damaged.

    The check stops at the time `deadline` of the monotonic clock.
    """
    columns = (RolloutGroup.id, RolloutGroup.run_id, RolloutGroup.step, RolloutGroup.kind)
    query = select(*columns, RolloutGroup.prompt_index, RolloutGroup.completions)
    for row in session.execute(query, execution_options={"yield_per": GROUPS_AT_ONCE}):
        if time.monotonic() > deadline:
            return
        try:
            decode(row.id, row.completions)
        except CompletionsDamaged as error:
            yield (
                f"run {row.run_id}, step {row.step}, {row.kind}, prompt {row.prompt_index}: the block that "
                f"holds its completions is damaged ({error}); a backup may have them"
            )
