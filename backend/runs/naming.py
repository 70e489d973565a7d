"""Names of runs: two words that are easy to say and to find again."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.storage.models import Run


def new_run_names(session: Session, count: int) -> list[str]:
    """`count` names that no run has yet; with very many runs names get a third word."""
    chosen: list[str] = []
    for words in (2, 2, 3, 4):
        candidates = {_slug(words) for _ in range((count - len(chosen)) * 2)} - set(chosen)
        taken = set(session.scalars(select(Run.name).where(Run.name.in_(candidates))))
        chosen += sorted(candidates - taken, key=hash)[: count - len(chosen)]
        if len(chosen) == count:
            break
    return chosen + [_slug(4) for _ in range(count - len(chosen))]


def _slug(words: int) -> str:
    from coolname import generate_slug  # its word lists take long to read

    return str(generate_slug(words))
