"""Schemas of evaluation results in the API."""

from backend.base.documented import Documented
from backend.runs.schemas import SpelledNumber


class EvaluationItem(Documented):
    """The result of a suite or of the held-out set after a step of a run."""

    run: str
    step: int
    """Number of training steps of the evaluated policy."""
    suite: str
    """Name of the suite, or "" for the held-out set."""
    values: dict[str, SpelledNumber]
    """Values by metric: accuracy, pass_at_<k>, maj_at_<k>, length_mean, truncated_frac, prompts, n."""
    intervals: dict[str, list[SpelledNumber]]
    """Lower and upper ends of the 95 % intervals, by metric."""
    source: str
    """Id of the run with the completions: the run itself, or an evaluation of its checkpoint."""
    source_step: int
    """Step under which the completions are stored in that run."""
    source_kind: str
    """Kind of the completions, for `GET /rollouts`."""
    has_checkpoint: bool
    """Whether the run still has a checkpoint of this step."""
    is_best: bool
    """Whether this is the step with the highest accuracy of the run on this
    suite. Of equal steps, it is the last.
    """


class EvaluationPage(Documented):
    """Results of runs, ordered by run, suite and step."""

    items: list[EvaluationItem]
    left_out: int
    """Number of older results that are left out. The newest ones, the first and the best are included."""
