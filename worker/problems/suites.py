"""Load the prompts of the suites on which a run is evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.base.errors import InvalidConfig
from backend.config.evaluation import Suite
from worker.problems.mixture import Ingredient, close_problem, held_out_prompts, new_problem, source_error
from worker.problems.rows import RowProblem
from worker.prompt import Prompt


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite with its prompts, which are the same in every run."""

    suite: Suite
    prompts: Sequence[Prompt]
    questions: Sequence[str]
    """Texts with which training rows are compared, without the instruction."""


def load_suites(suites: Sequence[Suite], *, datasets_dir: Path, hf_online: bool) -> list[LoadedSuite]:
    """Load every suite with its prompts.

    Raise InvalidConfig for a source that is unavailable, or PluginFailed.
    """
    loaded_suites = []
    for number, suite in enumerate(suites):
        try:
            loaded_suites.append(_load(suite, datasets_dir=datasets_dir, hf_online=hf_online))
        except (ValueError, OSError) as error:
            path = f"evaluation.suites.{number}.problem"
            raise InvalidConfig([source_error(suite.problem, path, error)]) from error
    return loaded_suites


def _load(suite: Suite, *, datasets_dir: Path, hf_online: bool) -> LoadedSuite:
    source = suite.problem
    problem = new_problem(
        source, seed=0, shuffled=False, datasets_dir=datasets_dir, hf_online=hf_online, trains=False
    )
    try:
        if isinstance(problem, RowProblem) and suite.rows == "all":
            problem.hold_out_all()
        ingredient = Ingredient(problem, source.label, source.weight, source.domain)
        prompts = held_out_prompts(ingredient, suite.prompts)
        if isinstance(problem, RowProblem):
            return LoadedSuite(suite, prompts, problem.held_out_questions())
        return LoadedSuite(suite, prompts, [prompt.text for prompt in prompts])
    finally:
        close_problem(problem)
