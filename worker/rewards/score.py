"""Compute the scores of completions: each reward term, their weighted sum, and correctness."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import assert_never

from backend.base.sandbox.layers import check_programs
from backend.base.settings import Settings
from backend.config.rewards import (
    BoxedFormatReward,
    CorrectnessReward,
    EnvironmentReward,
    LanguageReward,
    LengthReward,
    PluginReward,
    RewardTerm,
    ThinkFormatReward,
)
from backend.config.served_rewards import CodeReward, JudgeReward, RewardModelReward
from backend.rollouts.script import script_consistent, script_share
from backend.rollouts.tags import restore_think_tag
from worker.prompt import Prompt
from worker.rewards.answers import spelled_alike
from worker.rewards.code import CodeGrader
from worker.rewards.correctness import EXTRACTIONS, Checkers, Grade, Grader, process_count
from worker.rewards.episodes import episode_grades, episode_rewards
from worker.rewards.flags import completion_flags
from worker.rewards.formats import boxed_format, think_format
from worker.rewards.lengths import group_length_rewards
from worker.rewards.plugins import PluginTerm
from worker.rewards.served import ServedTerm, served_metrics
from worker.types import Completion, Group

Pair = tuple[Prompt, str]
Values = list[float | None]


class Scorer:
    """The reward of a run. It must be closed when the run ends, because it may own processes.

    A term with a domain applies only to prompts of that domain and replaces the term of the same name without
    a domain. If any term is None, the completion is not scored and its reward is None. Correctness is always
    determined, even if no term rewards it.
    """

    def __init__(self, terms: Sequence[RewardTerm], *, processes: int = 0, opens_think: bool = False) -> None:
        self._terms = tuple(terms)
        self._checkers = Checkers(processes)
        self._code = CodeGrader(process_count(processes))
        self._plugins = {_key(term): PluginTerm(term) for term in terms if isinstance(term, PluginReward)}
        settings = Settings()
        if any(isinstance(term, CodeReward | PluginReward) for term in terms):
            check_programs(settings)  # before anything is sampled
        self._served_terms = {
            _key(term): ServedTerm(term, settings)
            for term in terms
            if isinstance(term, JudgeReward | RewardModelReward)
        }
        self._turn = Lock()
        """Lock held during scoring, because evaluations and asynchronous rollouts may score concurrently."""
        self.opens_think = opens_think
        """True if the chat template ends every prompt with <think>."""
        self.expects_think = any(isinstance(term, ThinkFormatReward) for term in terms)

    @property
    def timeouts(self) -> int:
        """Number of answers that took too long to check so far. They were graded wrong."""
        return self._checkers.timeouts

    @property
    def failures(self) -> int:
        """Number of completions that are unscored so far because a plugin, judge or reward model failed."""
        return sum(term.failures for term in self._external_terms)

    @property
    def last_failure(self) -> str:
        """Error message of the last failed call."""
        return next((term.last_failure for term in self._external_terms if term.last_failure), "")

    @property
    def _external_terms(self) -> list[PluginTerm | ServedTerm]:
        return [*self._plugins.values(), *self._served_terms.values()]

    def take_metrics(self) -> dict[str, float]:
        """Return judge/*, the cost of server requests since the last call, or nothing if there were none."""
        return served_metrics([term.take_usage() for term in self._served_terms.values()])

    def score(self, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]) -> list[Group]:
        """Return one group per prompt: raw terms, weighted reward and correctness of its G completions.

        Raise PluginFailed if a reward plugin cannot be called or fails repeatedly, or RewardServerFailed if a
        judge or reward model scores nothing.
        """
        groups: dict[int, Group] = {}
        for domain in sorted({prompt.domain for prompt in prompts}):
            indices = [index for index, prompt in enumerate(prompts) if prompt.domain == domain]
            with self._turn:
                domain_groups = self._score_domain(
                    domain,
                    [prompts[position] for position in indices],
                    [completions[position] for position in indices],
                )
            groups.update(zip(indices, domain_groups, strict=True))
        return [groups[index] for index in range(len(prompts))]

    def correctness(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float | None]:
        """Return 1 if a text's answer is correct, else 0, or None if there is no expected answer."""
        grades: dict[int, Grade] = {}
        for domain in sorted({prompt.domain for prompt in prompts}):
            indices = [index for index, prompt in enumerate(prompts) if prompt.domain == domain]
            pairs = [(prompts[position], texts[position]) for position in indices]
            with self._turn:
                domain_grades, _ = self._grade(self._domain_terms(domain), pairs)
            grades.update(zip(indices, domain_grades, strict=True))
        return [_correctness(grades[index]) for index in range(len(prompts))]

    def votes(self, prompt: Prompt, texts: Sequence[str]) -> list[str | None]:
        """Return the answer of each text in a common spelling for majority votes, or None if it gives
        none.
        """
        extract = EXTRACTIONS[self._grader(self._domain_terms(prompt.domain)).term.extraction]
        return [spelled_alike(extract(text) or "") for text in texts]

    def weights(self, domain: str) -> dict[str, float]:
        """Return the weight of each term, by its label, for prompts of a domain."""
        return {term.label: term.weight for term in self._domain_terms(domain)}

    def flags(
        self, prompt: Prompt, completion: Completion, correctness: float | None, *, reward: float | None
    ) -> tuple[str, ...]:
        """Return the flags of a completion, see completion_flags."""
        return completion_flags(
            restore_think_tag(completion.text) if self.opens_think else completion.text,
            prompt=prompt.text,
            is_scored=reward is not None,
            is_truncated=completion.is_truncated,
            is_correct=None if correctness is None else correctness >= 1,
            expects_think=self.expects_think,
        )

    def close(self) -> None:
        """End every process that scores."""
        self._checkers.close()
        self._code.close()
        for plugin in self._plugins.values():
            plugin.close()

    def _domain_terms(self, domain: str) -> list[RewardTerm]:
        general = {term.label: term for term in self._terms if not term.domain}
        domain_terms = {term.label: term for term in self._terms if term.domain and term.domain == domain}
        return list((general | domain_terms).values())

    def _score_domain(
        self, domain: str, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]
    ) -> list[Group]:
        pairs = [(p, c.text) for p, row in zip(prompts, completions, strict=True) for c in row]
        terms = self._domain_terms(domain)
        grades, code = self._grade(terms, pairs)
        grades = episode_grades(terms, grades, completions)
        with ThreadPoolExecutor(max(1, len(terms))) as pool:  # most terms wait for other processes
            columns = pool.map(lambda term: self._values(term, pairs, grades, code, completions), terms)
            values = {term.label: column for term, column in zip(terms, columns, strict=True)}
        weights = self.weights(domain)
        misses_required = _missed_required(
            [values[term.label] for term in terms if _is_required(term)], count=len(pairs)
        )
        counted_terms = {label: _zero_missed(misses_required, column) for label, column in values.items()}
        totals = weighted_sums(counted_terms, weights, count=len(pairs))
        correct = [_correctness(grade) for grade in grades]
        groups, start = [], 0
        for prompt, row in zip(prompts, completions, strict=True):
            span = slice(start, start := start + len(row))
            raw = {label: tuple(column[span]) for label, column in values.items()}
            groups.append(
                Group(
                    prompt,
                    tuple(row),
                    rewards=tuple(totals[span]),
                    terms=raw,
                    correctness=tuple(correct[span]),
                    counted={label: tuple(column[span]) for label, column in counted_terms.items()},
                    weights=weights,
                    missed=tuple(misses_required[span]),
                )
            )
        return groups

    def _grader(self, terms: Sequence[RewardTerm]) -> Grader:
        correctness_terms = (term for term in terms if isinstance(term, CorrectnessReward))
        return Grader(next(correctness_terms, CorrectnessReward()), self._checkers)

    def _grade(self, terms: Sequence[RewardTerm], pairs: Sequence[Pair]) -> tuple[list[Grade], Values]:
        """Return the grade of each completion and the score of its program. If a row has tests, they
        decide both.
        """
        grades = self._grader(terms).grades(pairs)
        term = next((term for term in terms if isinstance(term, CodeReward)), None)
        if term is None:
            return grades, [None] * len(pairs)
        code = self._code.scores(term, pairs)
        test_grades = [
            grade if score is None else Grade(score) for grade, score in zip(grades, code, strict=True)
        ]
        return test_grades, code

    def _values(
        self,
        term: RewardTerm,
        pairs: Sequence[Pair],
        grades: Sequence[Grade],
        code: Values,
        completions: Sequence[Sequence[Completion]],
    ) -> Values:
        match term:
            case CorrectnessReward():
                return [_map_scale(grade.score, term.map) for grade in grades]
            case LengthReward():
                return _length_rewards(completions, grades)
            case LanguageReward():
                measure = script_share if term.form == "share" else script_consistent
                values: Values = [measure(prompt.text, text) for prompt, text in pairs]
            case ThinkFormatReward():
                values = [think_format(text, term.form, is_opened=self.opens_think) for _, text in pairs]
            case BoxedFormatReward():
                values = [boxed_format(text) for _, text in pairs]
            case CodeReward():
                values = code
            case JudgeReward() | RewardModelReward():
                values = self._served_terms[_key(term)].rewards(pairs)
            case EnvironmentReward():
                values = episode_rewards(completions)
            case PluginReward():
                ids = [completion.ids for row in completions for completion in row]
                values = self._plugins[_key(term)].rewards(pairs, ids)
            case _:
                assert_never(term)
        return _when_correct(values, grades) if term.only_when_correct else values


def _correctness(grade: Grade) -> float | None:
    return None if grade.is_correct is None else float(grade.is_correct)


def weighted_sums(
    values: Mapping[str, Sequence[float | None]], weights: Mapping[str, float], *, count: int
) -> Values:
    """Return the reward of `count` completions, or None if any term is None or no term applies."""
    rows = [[(column[index], weights[label]) for label, column in values.items()] for index in range(count)]
    return [_weighted_sum(row) for row in rows]


def _weighted_sum(terms: Sequence[tuple[float | None, float]]) -> float | None:
    products = [value * weight for value, weight in terms if value is not None]
    return sum(products) if products and len(products) == len(terms) else None


def _length_rewards(completions: Sequence[Sequence[Completion]], grades: Sequence[Grade]) -> Values:
    values: Values = []
    for row in completions:
        correct = [grade.is_correct for grade in grades[len(values) : len(values) + len(row)]]
        values += group_length_rewards([completion.written_tokens for completion in row], correct)
    return values


def _is_required(term: RewardTerm) -> bool:
    return not isinstance(term, CorrectnessReward | LengthReward) and term.required


def _missed_required(required_columns: Sequence[Values], *, count: int) -> list[bool]:
    """Return, for each of `count` completions, whether a required term has a value of 0 or less."""
    return [any(value is not None and value <= 0 for value in row) for row in _rows(required_columns, count)]


def _rows(columns: Sequence[Values], count: int) -> list[list[float | None]]:
    return [[column[index] for column in columns] for index in range(count)]


def _zero_missed(misses_required: Sequence[bool], values: Values) -> Values:
    """Return the values with 0 for completions that missed a required term. None is kept."""
    return [
        0.0 if is_missed and value is not None else value
        for is_missed, value in zip(misses_required, values, strict=True)
    ]


def _when_correct(values: Values, grades: Sequence[Grade]) -> Values:
    """Return the values of correct completions and 0 for the others, or None if either is unknown."""
    return [
        None if value is None or grade.is_correct is None else value * grade.is_correct
        for value, grade in zip(values, grades, strict=True)
    ]


def _map_scale(score: float | None, scale: str) -> float | None:
    return None if score is None else 2 * score - 1 if scale == "-1/1" else score


def _key(term: RewardTerm) -> tuple[str, str]:
    return term.label, term.domain
