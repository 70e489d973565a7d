"""Divide the completions behind a metric's change into categories."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from backend.config.run import RunConfig
from backend.rollouts.breakdown.cells import By, Cell
from backend.runs.origin import has_run_config
from backend.storage.models import Run

Key = Hashable

LENGTH_RANGES = 8
"""Number of length ranges, which contain about equal numbers of completions."""

SHAPING_CATEGORY = "gates and shaping"
LENGTH_PENALTY = "length_penalty"
"""Name of the reward term for length, whose weight is 1."""

Weights = Callable[[str], dict[str, float]]
"""A function that returns the weight of each reward term for prompts of a domain."""


@dataclass(frozen=True, slots=True)
class Categories:
    """A division of completions into categories, or of their reward into terms."""

    contributions: Callable[[Cell, float], Iterable[tuple[Key, float]]]
    """Function that returns the categories of a cell and each completion's contribution to them."""
    label: Callable[[Any], str]
    prompt: Callable[[Any], str] = lambda _: ""
    """Function that returns the prompt id of a category; empty if it has none."""
    marks: Callable[[Any], list[str]] = lambda _: []
    """Function that returns the marks by which the completions of a category are filtered."""
    is_sum: bool = False
    """Whether the categories are summands of the value of each completion."""
    notes: list[str] = field(default_factory=list)


def make_categories(by: By, cells: Sequence[Cell], weights: Weights | None) -> Categories:
    """Return the division of the completions; `weights` of reward terms are None if unknown."""
    match by:
        case "prompt":
            return Categories(_single_category(lambda cell: cell.prompt_id), str, prompt=str)
        case "group":
            key = _single_category(lambda cell: (cell.step, cell.prompt_index, cell.prompt_id))
            return Categories(key, lambda key: f"step {key[0]}, prompt {key[1]}", prompt=lambda key: key[2])
        case "flag":
            key = _single_category(lambda cell: tuple(cell.flags))
            return Categories(key, lambda key: ", ".join(key) or "no flag", marks=list)
        case "length":
            edges = _length_edges([cell.tokens for cell in cells])
            return Categories(
                _single_category(lambda cell: int(np.searchsorted(edges, cell.tokens, side="right"))),
                lambda at: _range_label(edges, at),
            )
        case "term":
            return _term_categories(weights)
        case _:
            assert_never(by)


def term_weights(run: Run) -> Weights | None:
    """Return the weights of a run's reward terms; None if the run is another trainer's."""
    if not has_run_config(run):
        return None
    terms = RunConfig.model_validate(run.config).rewards

    def weights(domain: str) -> dict[str, float]:
        general_weights = {term.label: term.weight for term in terms if not term.domain}
        domain_weights = {term.label: term.weight for term in terms if term.domain and term.domain == domain}
        return general_weights | domain_weights | {LENGTH_PENALTY: 1.0}

    return weights


def _single_category(key: Callable[[Cell], Key]) -> Callable[[Cell, float], list[tuple[Key, float]]]:
    return lambda cell, value: [(key(cell), value)]


def _term_categories(weights: Weights | None) -> Categories:
    """Return the division into weighted terms and the effect of required terms and length on their sum."""

    def split_terms(cell: Cell, value: float) -> list[tuple[Key, float]]:
        factors = {} if weights is None else weights(cell.domain)
        terms = [
            (name, factors.get(name, 1.0) * float(term))
            for name, term in cell.rewards.items()
            if term is not None and not isinstance(term, str)
        ]
        return [*terms, (SHAPING_CATEGORY, value - sum(term_value for _, term_value in terms))]

    note = "The weights of this run's reward terms are not known: each counts as 1, the rest as shaping."
    return Categories(split_terms, str, is_sum=True, notes=[note] if weights is None else [])


def _length_edges(lengths: Sequence[int]) -> list[int]:
    """Return the lengths at which the ranges after the first begin."""
    if not lengths:
        return []
    quantiles = np.quantile(lengths, np.arange(1, LENGTH_RANGES) / LENGTH_RANGES, method="lower")
    return [edge for edge in sorted({int(edge) for edge in quantiles}) if edge > min(lengths)]


def _range_label(edges: Sequence[int], index: int) -> str:
    if not edges:
        return "all lengths"
    if index == 0:
        return f"below {edges[0]} tokens"
    if index == len(edges):
        return f"{edges[-1]} tokens and more"
    return f"{edges[index - 1]} to {edges[index] - 1} tokens"
