"""A weighted mixture of problems. The only training state is a cursor: the number of drawn prompts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import floor
from pathlib import Path

from backend.base.errors import FieldError, InvalidConfig, PluginFailed
from backend.config.data import DataConfig
from backend.config.pass_rates import PassRates, read_rates
from backend.config.problems import (
    EpisodesProblem,
    FileProblem,
    HubProblem,
    PluginProblem,
    ProblemSource,
    ReasoningGymProblem,
    SumsProblem,
)
from worker.problems.base import Problem
from worker.problems.episodes import Episodes
from worker.problems.file import load_file
from worker.problems.hub import load_hub
from worker.problems.plugins import Plugin
from worker.problems.reasoning_gym import ReasoningGym
from worker.problems.rows import RowProblem
from worker.problems.selection import Selection
from worker.problems.sums import Sums
from worker.prompt import Prompt

ALL_ROWS = DataConfig()
PROMPTS_PER_ROUND = 1000
"""Number of prompts after which the shares of the sources are exact."""

DETOUR_STEP, MAX_DETOURS = 1_000_003, 50
"""Index step and maximum number of tries to replace a training prompt that another source holds out."""

ERROR_FIELDS = {
    "sums": "operands",
    "reasoning_gym": "task_config",
    "file": "path",
    "hub": "dataset",
    "episodes": "instruction",
    "plugin": "entry_point",
}
"""Config field for which errors are reported, by type of source."""


@dataclass(frozen=True)
class Ingredient:
    """One source of a mixture."""

    problem: Problem
    label: str
    """Name of the problem for the source's prompts, which is unique within the mixture."""
    weight: float
    domain: str
    """Domain of prompts that do not specify one."""


class Mixture:
    """Provides training prompts by cursor and a fixed held-out set, which has to be built first.

    Prompt i comes from the source that a smooth weighted round-robin selects, so the shares are nearly exact
    in every short sequence. Its number within the source is the number of earlier selections of that source.
    """

    def __init__(self, ingredients: Sequence[Ingredient], selections: Sequence[Selection] = ()) -> None:
        self.selections = tuple(selections)
        """Results of the row selection, one per source of rows."""
        self._ingredients = tuple(ingredients)
        weights = [ingredient.weight for ingredient in ingredients]
        self._pattern = round_robin(quotas(weights, total=PROMPTS_PER_ROUND if len(weights) > 1 else 1))
        self._counts_before = _counts_before(self._pattern)
        self._per_round = Counter(self._pattern)
        self._held_out: set[str] = set()

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Return training prompts `cursor` to `cursor + count - 1` of the run, none of them held out."""
        return [self._prompt(number) for number in range(cursor, cursor + count)]

    def evaluation_set(self, count: int) -> list[Prompt]:
        """Return different held-out prompts, divided by weight, or fewer if a source has too few."""
        shares = quotas([ingredient.weight for ingredient in self._ingredients], total=count)
        prompts = [
            prompt
            for ingredient, share in zip(self._ingredients, shares, strict=True)
            for prompt in held_out_prompts(ingredient, share)
        ]
        different = {prompt.task: prompt for prompt in prompts}
        self.hold_out(different.values())
        return list(different.values())

    def hold_out(self, prompts: Iterable[Prompt]) -> None:
        """Exclude these prompts from training too."""
        self._held_out.update(prompt.task for prompt in prompts)

    def close(self) -> None:
        """End every process that generates prompts."""
        for ingredient in self._ingredients:
            close_problem(ingredient.problem)

    def _prompt(self, number: int) -> Prompt:
        rounds, position = divmod(number, len(self._pattern))
        source = self._pattern[position]
        ingredient = self._ingredients[source]
        index = rounds * self._per_round[source] + self._counts_before[position]
        for attempt in range(MAX_DETOURS):
            prompt = _label_prompt(
                ingredient.problem.sample(index + attempt * DETOUR_STEP, "train"), ingredient
            )
            if prompt.task not in self._held_out:
                return prompt
        raise ValueError(f"{ingredient.label}: training prompts are held out, e.g. number {index}")


def build_mixture(
    problems: Sequence[ProblemSource],
    *,
    seed: int,
    order: str,
    datasets_dir: Path,
    hf_online: bool,
    data: DataConfig = ALL_ROWS,
    held_out: Sequence[str] = (),
) -> Mixture:
    """Build the mixture of a run. With the order `sequential` all runs get the same prompts, whatever their
    seed.

    `held_out` holds questions of suites. Training rows are compared with them and with the questions that the
    sources hold out. Raise InvalidConfig for a source that is unavailable or has no row left, or
    PluginFailed.
    """
    seed = 0 if order == "sequential" else seed
    ingredients: list[Ingredient] = []
    try:
        for source, label in zip(problems, unique_labels(problems), strict=True):
            problem = build_problem(
                source,
                seed=seed,
                shuffled=order == "shuffled",
                datasets_dir=datasets_dir,
                hf_online=hf_online,
            )
            ingredients.append(Ingredient(problem, label, source.weight, source.domain))
    except (ValueError, OSError) as error:
        Mixture(ingredients).close()
        number = len(ingredients)
        raise _source_error(problems, number, error) from error
    return Mixture(ingredients, _select_rows(problems, ingredients, data, held_out, datasets_dir))


def _select_rows(
    problems: Sequence[ProblemSource],
    ingredients: Sequence[Ingredient],
    data: DataConfig,
    suite_questions: Sequence[str],
    datasets_dir: Path,
) -> list[Selection]:
    """Select the training rows of every source. A held-out question of one source applies to all sources."""
    if data.is_default:
        return []
    rows = {
        n: ingredient.problem
        for n, ingredient in enumerate(ingredients)
        if isinstance(ingredient.problem, RowProblem)
    }
    has_checks = data.contamination != "ignore" or data.near_duplicates != "ignore"
    source_questions = (
        [text for problem in rows.values() for text in problem.held_out_questions()] if has_checks else []
    )
    held_out = [*source_questions, *suite_questions]
    pass_rates = _load_pass_rates(data, datasets_dir)
    selections = []
    for number, problem in rows.items():
        try:
            selections.append(problem.select(data, held_out, pass_rates))
        except ValueError as error:
            Mixture(ingredients).close()
            raise _source_error(problems, number, error) from error
    return selections


def _load_pass_rates(data: DataConfig, datasets_dir: Path) -> PassRates | None:
    try:
        return read_rates(datasets_dir, data.pass_rates) if data.pass_rates else None
    except ValueError as error:
        raise InvalidConfig([FieldError("data.pass_rates", str(error))]) from error


def _source_error(problems: Sequence[ProblemSource], number: int, error: Exception) -> InvalidConfig:
    """Return the error of one source for the field that specifies its input."""
    return InvalidConfig([source_error(problems[number], f"problems.{number}", error)])


def source_error(source: ProblemSource, path: str, error: Exception) -> FieldError:
    """Return the error of a source at a dotted path, for the field that specifies its input."""
    return FieldError(f"{path}.{ERROR_FIELDS[source.name]}", str(error))


def unique_labels(problems: Sequence[ProblemSource]) -> list[str]:
    """Return the sources' labels. The second source with the same label gets the suffix #2, and so on."""
    labels: Counter[str] = Counter()
    unique = []
    for source in problems:
        labels[source.label] += 1
        unique.append(source.label if labels[source.label] == 1 else f"{source.label}#{labels[source.label]}")
    return unique


def build_problem(
    source: ProblemSource, *, seed: int, shuffled: bool, datasets_dir: Path, hf_online: bool
) -> Problem:
    """Build the problem that a source describes, and draw one prompt per split to find errors early."""
    problem = new_problem(
        source, seed=seed, shuffled=shuffled, datasets_dir=datasets_dir, hf_online=hf_online
    )
    try:
        problem.sample(0, "train")
        problem.sample(0, "eval")
    except (ValueError, PluginFailed):
        close_problem(problem)
        raise
    return problem


def close_problem(problem: Problem) -> None:
    """End the processes of a problem, if any."""
    if isinstance(problem, ReasoningGym):
        problem.close()


def quotas(weights: Sequence[float], *, total: int) -> list[int]:
    """Divide `total` by weight, largest remainders first. Each share is at least one if possible."""
    exact_shares = [weight / sum(weights) * total for weight in weights]
    shares = [max(floor(share), 1 if total >= len(weights) else 0) for share in exact_shares]
    neediest_first = sorted(
        range(len(weights)), key=lambda index: exact_shares[index] - shares[index], reverse=True
    )
    for index in neediest_first[: max(0, total - sum(shares))]:
        shares[index] += 1
    while sum(shares) > total:
        shares[shares.index(max(shares))] -= 1
    return shares


def round_robin(shares: Sequence[int]) -> list[int]:
    """Return each source's index according to its share, spread evenly (nginx's smooth weighted
    round-robin).
    """
    balances, order = [0] * len(shares), []
    for _ in range(sum(shares)):
        balances = [balance + share for balance, share in zip(balances, shares, strict=True)]
        source = balances.index(max(balances))
        balances[source] -= sum(shares)
        order.append(source)
    return order


def _counts_before(pattern: Sequence[int]) -> list[int]:
    source_counts: Counter[int] = Counter()
    counts = []
    for source in pattern:
        counts.append(source_counts[source])
        source_counts[source] += 1
    return counts


def held_out_prompts(ingredient: Ingredient, limit: int) -> list[Prompt]:
    """Return the first `limit` different held-out prompts, or fewer if the source only repeats prompts."""
    prompt_by_task: dict[str, Prompt] = {}
    repeats = 0
    for index in count():
        if len(prompt_by_task) >= limit or repeats > 50 + limit:
            return list(prompt_by_task.values())
        prompt = _label_prompt(ingredient.problem.sample(index, "eval"), ingredient)
        repeats = repeats + 1 if prompt.task in prompt_by_task else 0
        prompt_by_task.setdefault(prompt.task, prompt)
    raise AssertionError("count() never ends")


def _label_prompt(prompt: Prompt, ingredient: Ingredient) -> Prompt:
    return replace(prompt, problem=ingredient.label, domain=prompt.domain or ingredient.domain)


def new_problem(
    source: ProblemSource,
    *,
    seed: int,
    shuffled: bool,
    datasets_dir: Path,
    hf_online: bool,
    trains: bool = True,
) -> Problem:
    """Create the problem that a source describes. A file used only for evaluation needs no training rows."""
    match source:
        case SumsProblem():
            return Sums(
                seed=seed, operands=source.operands, low=source.low, high=source.high, domain=source.domain
            )
        case ReasoningGymProblem():
            return ReasoningGym(source, seed=seed)
        case FileProblem():
            return load_file(source, datasets_dir, seed=seed, shuffled=shuffled, trains=trains)
        case HubProblem():
            return load_hub(source, seed=seed, shuffled=shuffled, hf_online=hf_online)
        case EpisodesProblem():
            return Episodes(seed=seed, instruction=source.instruction, domain=source.domain)
        case PluginProblem():
            return Plugin(source, seed=seed)
