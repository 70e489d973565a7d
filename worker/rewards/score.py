"""From completions to scored groups: each reward term, their weighted sum, and who is right."""

from collections.abc import Mapping, Sequence

from backend.config.rewards import (
    BoxedFormatReward,
    CorrectnessReward,
    PluginReward,
    RewardTerm,
    ThinkFormatReward,
)
from worker.rewards.correctness import Checkers, Grade, Grader
from worker.rewards.flags import completion_flags
from worker.rewards.formats import boxed_format, think_format
from worker.rewards.plugins import PluginTerm
from worker.rollout.types import Completion, Group, Prompt

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

    def score(self, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]) -> list[Group]:
        """One group per prompt: raw terms, weighted reward and correctness of its G completions.

        Raises PluginFailed when a user's own reward raises, hangs or returns no finite number.
        """
        groups: dict[int, Group] = {}
        for domain in sorted({prompt.domain for prompt in prompts}):
            places = [place for place, prompt in enumerate(prompts) if prompt.domain == domain]
            scored = self._scored(domain, [prompts[at] for at in places], [completions[at] for at in places])
            groups.update(zip(places, scored, strict=True))
        return [groups[place] for place in range(len(prompts))]

    def weights(self, domain: str) -> dict[str, float]:
        """Factor of each term, by its label, for prompts of a domain."""
        return {term.label: term.weight for term in self._of(domain)}

    def flags(self, completion: Completion, correctness: float | None) -> tuple[str, ...]:
        """What is conspicuous about a scored completion: truncated, wrong, unparsed, no_think, repetitive."""
        return completion_flags(
            completion.text,
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
        values = {term.label: self._values(term, pairs, grades) for term in terms}
        weights = self.weights(domain)
        totals = weighted_sums(values, weights, count=len(pairs))
        correct = [None if grade.is_correct is None else float(grade.is_correct) for grade in grades]
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
                    counted=raw,
                    weights=weights,
                )
            )
        return groups

    def _grader(self, terms: Sequence[RewardTerm]) -> Grader:
        own = (term for term in terms if isinstance(term, CorrectnessReward))
        return Grader(next(own, CorrectnessReward()), self._checkers)

    def _values(self, term: RewardTerm, pairs: Sequence[Pair], grades: Sequence[Grade]) -> Values:
        match term:
            case CorrectnessReward():
                return [_mapped(grade.score, term.map) for grade in grades]
            case ThinkFormatReward():
                values: Values = [think_format(text, term.form) for _, text in pairs]
            case BoxedFormatReward():
                values = [boxed_format(text) for _, text in pairs]
            case PluginReward():
                values = self._plugins[_key(term)].rewards(pairs)
        return _when_correct(values, grades) if term.only_when_correct else values


def weighted_sums(
    values: Mapping[str, Sequence[float | None]], weights: Mapping[str, float], *, count: int
) -> Values:
    """The reward of `count` completions; None where any term is None, or where no term applies at all."""
    rows = [[(column[at], weights[label]) for label, column in values.items()] for at in range(count)]
    return [_weighted_sum(row) for row in rows]


def _weighted_sum(terms: Sequence[tuple[float | None, float]]) -> float | None:
    known = [value * weight for value, weight in terms if value is not None]
    return sum(known) if known and len(known) == len(terms) else None


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
