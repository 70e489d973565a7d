"""Results of evaluations as the HTTP interface shows them."""

from backend.base.documented import Documented
from backend.runs.schemas import SpelledNumber


class EvaluationItem(Documented):
    """One suite, or the held-out set, after one step of a run."""

    run: str
    step: int
    """Training steps of the policy that was evaluated."""
    suite: str
    """Name of the suite; empty: the held-out set."""
    values: dict[str, SpelledNumber]
    """accuracy, pass_at_<k>, maj_at_<k>, length_mean, truncated_frac, prompts, n."""
    intervals: dict[str, list[SpelledNumber]]
    """Lower and upper end of the 95 % intervals, by the same names."""
    source: str
    """The run that holds the completions: the run itself, or an evaluation of its checkpoint."""
    source_step: int
    """The step at which the completions are stored there."""
    source_kind: str
    """Their kind, as `GET /rollouts` takes it."""
    has_checkpoint: bool
    """Whether the run still has a checkpoint of that step."""
    is_best: bool
    """Whether no other step of the run was more accurate on this suite; of equal ones the last."""


class EvaluationPage(Documented):
    """Results of several runs: by run, then suite, then step."""

    items: list[EvaluationItem]
    left_out: int
    """Older results that are not shown: of each run and suite the newest ones, the first and the best are."""
