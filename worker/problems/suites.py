"""Load the prompts on which a run is trained and evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass

from backend.base.errors import InvalidConfig
from backend.base.settings import Settings
from backend.config.data import DataConfig
from backend.config.evaluation import Suite
from backend.config.run import RunConfig
from worker.problems.mixture import (
    Ingredient,
    Mixture,
    build_mixture,
    close_problem,
    held_out_prompts,
    new_problem,
    source_error,
)
from worker.problems.rows import RowProblem
from worker.prompt import Prompt


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite with its prompts, which are the same in every run."""

    suite: Suite
    prompts: Sequence[Prompt]
    questions: Sequence[str]
    """Texts with which training rows are compared, without the instruction."""


def load_problems(
    config: RunConfig, settings: Settings, data: DataConfig
) -> tuple[list[LoadedSuite], Mixture]:
    """Load the suites of a run, and the mixture of its problems, whose rows are compared with the suites.

    Raise InvalidConfig for a source that is unavailable or has no row left, or PluginFailed.
    """
    suites = _load_suites(config.evaluation.suites, settings)
    mixture = build_mixture(
        config.problems,
        seed=config.seed,
        order=config.sampling.order,
        datasets_dir=settings.datasets_dir,
        hf_online=settings.hf_online,
        data=data,
        held_out=[question for suite in suites for question in suite.questions],
    )
    return suites, mixture


def _load_suites(suites: Sequence[Suite], settings: Settings) -> list[LoadedSuite]:
    loaded_suites = []
    for number, suite in enumerate(suites):
        try:
            loaded_suites.append(_load(suite, settings))
        except (ValueError, OSError) as error:
            path = f"evaluation.suites.{number}.problem"
            raise InvalidConfig([source_error(suite.problem, path, error)]) from error
    return loaded_suites


def _load(suite: Suite, settings: Settings) -> LoadedSuite:
    source = suite.problem
    problem = new_problem(
        source,
        seed=0,
        shuffled=False,
        datasets_dir=settings.datasets_dir,
        hf_online=settings.hf_online,
        trains=False,
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
