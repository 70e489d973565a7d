"""Scores of completions: each reward term, their weighted sum, and who is right."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from backend.config.rewards import (
    BoxedFormatReward,
    CorrectnessReward,
    LanguageReward,
    LengthReward,
    PluginReward,
    RewardTerm,
    ThinkFormatReward,
)
from worker.prompt import Prompt
from worker.rewards.correctness import Checkers, Grade, Grader
from worker.rewards.flags import completion_flags
from worker.rewards.formats import boxed_format, think_format
from worker.rewards.language import script_consistent, script_share
from worker.rewards.lengths import group_length_rewards
from worker.rewards.plugins import PluginTerm
from worker.types import Completion, Group

Pair = tuple[Prompt, str]
Values = list[float | None]


class Scorer:
    """The reward of a run. Close it when the run ends: it may own processes.

    A term with a domain counts for prompts of that domain only and replaces the term of the same name without
    one. A completion for which any term is None is not scored: its reward is None. Whether the answer is
    right is always found out, also when no term rewards it.
    """

    def __init__(self, terms: Sequence[RewardTerm], *, processes: int = 0) -> None:
        self._terms = tuple(terms)
        self._checkers = Checkers(processes)
        self._plugins = {_key(term): PluginTerm(term) for term in terms if isinstance(term, PluginReward)}
        self.expects_think = any(isinstance(term, ThinkFormatReward) for term in terms)

    @property
    def timeouts(self) -> int:
        """Answers that took too long to check so far; each was graded wrong."""
        return self._checkers.timeouts

    @property
    def failures(self) -> int:
        """Calls of a user's own rewards that failed so far; each left a completion unscored."""
        return sum(plugin.failures for plugin in self._plugins.values())

    @property
    def last_failure(self) -> str:
        """The error of the last failed call."""
        return next((plugin.last_failure for plugin in self._plugins.values() if plugin.last_failure), "")

    def score(self, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]) -> list[Group]:
        """One group per prompt: raw terms, weighted reward and correctness of its G completions.

        Raises PluginFailed when a user's own reward cannot be called, or fails time after time.
        """
        groups: dict[int, Group] = {}
        for domain in sorted({prompt.domain for prompt in prompts}):
            places = [place for place, prompt in enumerate(prompts) if prompt.domain == domain]
            scored = self._scored(domain, [prompts[at] for at in places], [completions[at] for at in places])
            groups.update(zip(places, scored, strict=True))
        return [groups[place] for place in range(len(prompts))]

    def correctness(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float | None]:
        """1 where a text's answer is right, else 0; None where nothing is known to compare it with."""
        grades: dict[int, Grade] = {}
        for domain in sorted({prompt.domain for prompt in prompts}):
            places = [place for place, prompt in enumerate(prompts) if prompt.domain == domain]
            pairs = [(prompts[at], texts[at]) for at in places]
            grades.update(zip(places, self._grader(self._of(domain)).grades(pairs), strict=True))
        return [_correctness(grades[place]) for place in range(len(prompts))]

    def weights(self, domain: str) -> dict[str, float]:
        """Factor of each term, by its label, for prompts of a domain."""
        return {term.label: term.weight for term in self._of(domain)}

    def flags(
        self, completion: Completion, correctness: float | None, *, reward: float | None
    ) -> tuple[str, ...]:
        """The flags of a conspicuous completion: see completion_flags."""
        return completion_flags(
            completion.text,
            is_scored=reward is not None,
            is_truncated=completion.is_truncated,
            is_correct=None if correctness is None else correctness >= 1,
            expects_think=self.expects_think,
        )

    def close(self) -> None:
        """End every process that scores."""
        self._checkers.close()
        for plugin in self._plugins.values():
            plugin.close()

    def _of(self, domain: str) -> list[RewardTerm]:
        general = {term.label: term for term in self._terms if not term.domain}
        own = {term.label: term for term in self._terms if term.domain and term.domain == domain}
        return list((general | own).values())

    def _scored(
        self, domain: str, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]
    ) -> list[Group]:
        pairs = [(p, c.text) for p, row in zip(prompts, completions, strict=True) for c in row]
        terms = self._of(domain)
        grades = self._grader(terms).grades(pairs)
        values = {term.label: self._values(term, pairs, grades, completions) for term in terms}
        weights = self.weights(domain)
        missed = _missed([values[term.label] for term in terms if _is_required(term)], count=len(pairs))
        counted = {label: _unless(missed, column) for label, column in values.items()}
        totals = weighted_sums(counted, weights, count=len(pairs))
        correct = [_correctness(grade) for grade in grades]
        groups, start = [], 0
        for prompt, row in zip(prompts, completions, strict=True):
            part = slice(start, start := start + len(row))
            raw = {label: tuple(column[part]) for label, column in values.items()}
            groups.append(
                Group(
                    prompt,
                    tuple(row),
                    rewards=tuple(totals[part]),
                    terms=raw,
                    correctness=tuple(correct[part]),
                    counted={label: tuple(column[part]) for label, column in counted.items()},
                    weights=weights,
                    missed=tuple(missed[part]),
                )
            )
        return groups

    def _grader(self, terms: Sequence[RewardTerm]) -> Grader:
        own = (term for term in terms if isinstance(term, CorrectnessReward))
        return Grader(next(own, CorrectnessReward()), self._checkers)

    def _values(
        self,
        term: RewardTerm,
        pairs: Sequence[Pair],
        grades: Sequence[Grade],
        completions: Sequence[Sequence[Completion]],
    ) -> Values:
        match term:
            case CorrectnessReward():
                return [_mapped(grade.score, term.map) for grade in grades]
            case LengthReward():
                return _length_rewards(completions, grades)
            case LanguageReward():
                measure = script_share if term.form == "share" else script_consistent
                values: Values = [measure(prompt.text, text) for prompt, text in pairs]
            case ThinkFormatReward():
                values = [think_format(text, term.form) for _, text in pairs]
            case BoxedFormatReward():
                values = [boxed_format(text) for _, text in pairs]
            case PluginReward():
                values = self._plugins[_key(term)].rewards(pairs)
            case _:
                assert_never(term)
        return _when_correct(values, grades) if term.only_when_correct else values


def _correctness(grade: Grade) -> float | None:
    return None if grade.is_correct is None else float(grade.is_correct)


def weighted_sums(
    values: Mapping[str, Sequence[float | None]], weights: Mapping[str, float], *, count: int
) -> Values:
    """The reward of `count` completions; None where any term is None, or where no term applies at all."""
    rows = [[(column[at], weights[label]) for label, column in values.items()] for at in range(count)]
    return [_weighted_sum(row) for row in rows]


def _weighted_sum(terms: Sequence[tuple[float | None, float]]) -> float | None:
    known = [value * weight for value, weight in terms if value is not None]
    return sum(known) if known and len(known) == len(terms) else None


def _length_rewards(completions: Sequence[Sequence[Completion]], grades: Sequence[Grade]) -> Values:
    values: Values = []
    for row in completions:
        correct = [grade.is_correct for grade in grades[len(values) : len(values) + len(row)]]
        values += group_length_rewards([len(completion) for completion in row], correct)
    return values


def _is_required(term: RewardTerm) -> bool:
    return not isinstance(term, CorrectnessReward | LengthReward) and term.required


def _missed(required: Sequence[Values], *, count: int) -> list[bool]:
    """Which of `count` completions lack something that is required: 0 or less of it."""
    return [any(value is not None and value <= 0 for value in row) for row in _rows(required, count)]


def _rows(columns: Sequence[Values], count: int) -> list[list[float | None]]:
    return [[column[at] for column in columns] for at in range(count)]


def _unless(missed: Sequence[bool], values: Values) -> Values:
    """The values with 0 where something required was missed; None stays."""
    return [0.0 if gone and value is not None else value for gone, value in zip(missed, values, strict=True)]


def _when_correct(values: Values, grades: Sequence[Grade]) -> Values:
    """The values of correct completions, 0 for the others; None where either is unknown."""
    return [
        None if value is None or grade.is_correct is None else value * grade.is_correct
        for value, grade in zip(values, grades, strict=True)
    ]


def _mapped(score: float | None, scale: str) -> float | None:
    return None if score is None else 2 * score - 1 if scale == "-1/1" else score


def _key(term: RewardTerm) -> tuple[str, str]:
    return term.label, term.domain
