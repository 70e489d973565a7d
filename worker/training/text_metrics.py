"""Text metrics of a step's completions."""

from collections.abc import Sequence

from backend.rollouts.text_metrics import WrittenCompletion
from backend.rollouts.text_metrics import text_metrics as metrics_of
from worker.types import Group


def text_metrics(groups: Sequence[Group], *, opens_think: bool = False) -> dict[str, float]:
    """Return text/* over all completions of a step. `opens_think` is true if every prompt ends with
    <think>.
    """
    return metrics_of(
        [
            WrittenCompletion(group.prompt.text, completion.own_text, completion.is_truncated, opens_think)
            for group in groups
            for completion in group.completions
        ]
    )
