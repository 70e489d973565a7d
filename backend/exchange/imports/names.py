"""Find the metric of each column by its name, its values and the other columns of the log."""

import re
from collections.abc import Container, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from backend.config.metrics import canonical_name, find_metric, plain_name
from backend.exchange.imports.name_words import metric_by_words
from backend.exchange.imports.table import Floats, excerpt
from backend.metrics.store import NAME_PATTERN

__all__ = [
    "Naming",
    "choose_metric_names",
    "is_accuracy",
    "is_known",
    "metric_name",
    "metric_of_name",
    "plain_name",
]

MAX_CHARACTERS = 128
"""Maximum number of characters in the name of a metric."""
MAX_PERCENT = 100.0

_HELD_OUT = (
    re.compile(r"val-core/(?P<data>.+)/(?P<what>acc|accuracy|reward|score)/mean@(?P<n>\d+)"),
    re.compile(r"val/(?P<what>test_score|acc|accuracy)/(?P<data>.+)"),
    re.compile(
        r"eval/(?P<data>[^/]+)/(?:effective/\w+/)?(?P<what>acc|avg_score|mean_acc|mean_accuracy|avg@\d+)"
    ),
    re.compile(r"eval[_/](?P<data>.+)[_/](?P<what>acc|accuracy|pass1)"),
)
"""Held-out accuracies that trainers log per set of problems: verl before and since 0.4, SkyRL, OpenRLHF."""

_EVAL_SET_PATTERN = re.compile(r"eval/(?P<data>[^/]+)")
_TRUNCATED = "-truncated_ratio"
"""Suffix of a metric that slime logs in addition to the accuracy on each set of problems, `eval/<set>`."""
_EVAL_TERM_PATTERN = re.compile(r"eval[_/]rewards/(?P<term>[^/]+)(?:/mean)?")
_HOME_MADE_TERM = re.compile(
    r"(?P<term>(?:format|accuracy|correct|answer|length|think|tag|xml|int|repetition)[^/]*?_reward)s?"
    r"(?:_(?:avg|mean))?"
)
_TERM_PATTERN = re.compile(r"reward/(?P<term>[^/]+)/mean")
_AFFIX_PATTERN = re.compile(r"^(?:reward|rewards|math)_|_(?:reward|score|func|fn|function|orm)(?=_|$)")
_ACCURATE = {"accuracy", "acc", "correct", "correctness", "mathaccuracy", "is_correct", "answer_correct"}
_ACCURACIES = re.compile(
    r"(?:eval|reward)/accuracy|eval/accuracy/[^/]+|eval/[^/]+/accuracy|eval/(?:\w+/)?pass_at_\d+"
)

_SECOND = {"critic/score/mean": "reward/mean", "score": "reward/mean", "scores": "reward/mean"}
"""Names of a metric that are used only if no other column matches it."""

_UNSTORABLE_PATTERN = re.compile(r"[^\w./@-]+")

_NORMALISED = {"rollout/rewards", "rewards"}
"""Rewards that some trainers log after subtracting the mean of each group, which makes them 0."""


class Naming(NamedTuple):
    """The metric of a column."""

    metric: str
    reason: str
    """Reason why the name differs from the column's name, or why another column has the expected name."""


@lru_cache(4_096)
def is_known(column: str) -> bool:
    """Return whether the name of a column determines its metric."""
    return (
        canonical_name(column) is not None
        or find_metric(column) is not None
        or column in _SECOND
        or _held_out(column) is not None
        or metric_by_words(column) is not None
    )


def metric_of_name(column: str) -> str:
    """Return the metric that the name of a column alone means, or else its plain name."""
    return canonical_name(column) or metric_by_words(column) or plain_name(column)


def is_accuracy(metric: str) -> bool:
    """Return whether a metric is a share of right answers, which is stored as a fraction."""
    return _ACCURACIES.fullmatch(metric) is not None


def choose_metric_names(
    columns: Mapping[str, Floats], requested_names: Mapping[str, str]
) -> dict[str, Naming]:
    """Return the metric of each column; `requested_names` are names that the user has specified."""
    names = {
        column: Naming(name, "named by you")
        for column, name in requested_names.items()
        if name and column in columns
    }
    column_by_metric = {naming.metric: column for column, naming in names.items()}
    for by_name in (
        _held_out_accuracies(columns),
        _by_own_names(columns),
        _second_choices(columns),
        _by_words(columns),
    ):
        for column, naming in by_name.items():
            if column in names or column in requested_names:
                continue
            if naming.metric in column_by_metric and naming.metric != column:
                continue
            names[column] = naming
            column_by_metric.setdefault(naming.metric, column)
    for column in columns:
        if column not in names and column not in requested_names:
            names[column] = _keep_name(column, column_by_metric)
            column_by_metric.setdefault(names[column].metric, column)
    return {column: names[column] for column in columns if column in names}


def metric_name(column: str, used_names: Container[str]) -> Naming:
    """Return the metric of a value by its name; no metric is used twice."""
    metric = _clean_metric_name(canonical_name(column) or "")
    return Naming(metric, "the same quantity") if metric and metric not in used_names else _own_name(column)


def _clean_metric_name(metric: str) -> str:
    """Return a metric name with storable characters; empty if it would be too long."""
    metric = _UNSTORABLE_PATTERN.sub("_", metric)
    return metric if NAME_PATTERN.fullmatch(metric) else ""


def _own_name(column: str) -> Naming:
    clean_name = _UNSTORABLE_PATTERN.sub("_", column)
    if len(clean_name) > MAX_CHARACTERS:
        digest = blake2b(column.encode(errors="surrogatepass"), digest_size=4).hexdigest()
        # The digest distinguishes names that start with the same characters.
        short_name = f"{clean_name[: MAX_CHARACTERS - len(digest) - 1]}-{digest}"
        return Naming(short_name, f"a name has at most {MAX_CHARACTERS} characters")
    return Naming(
        clean_name, "" if clean_name == column else "only letters, digits and _ . / @ - stand in a name"
    )


def _by_own_names(columns: Mapping[str, Floats]) -> dict[str, Naming]:
    names = {}
    has_accuracy = "reward/accuracy" in columns
    for column, values in columns.items():
        custom_term = _HOME_MADE_TERM.fullmatch(column)
        metric = canonical_name(column) or (f"reward/{custom_term['term']}/mean" if custom_term else "")
        metric = _clean_metric_name(metric)
        term = _TERM_PATTERN.fullmatch(metric)
        if term is not None and not has_accuracy and _is_accurate(term["term"]) and _are_fractions(values):
            names[column] = Naming(
                "reward/accuracy", "a term that is 1 for a right answer, by its name and values"
            )
            has_accuracy = True
        elif metric and not _is_normalised(column, values):
            names[column] = Naming(metric, "the same quantity")
    return names


def _second_choices(columns: Mapping[str, Floats]) -> dict[str, Naming]:
    return {
        column: Naming(_SECOND[column], "the same quantity, as no other column is it")
        for column in columns
        if column in _SECOND
    }


def _by_words(columns: Mapping[str, Floats]) -> dict[str, Naming]:
    return {
        column: Naming(metric, "the same quantity, by the words of its name")
        for column, values in columns.items()
        if (metric := metric_by_words(column)) is not None
        if find_metric(column) is None and column not in _NORMALISED
        if not is_accuracy(metric) or _are_shares(values, "accuracy")
    }


def _keep_name(column: str, column_by_metric: Mapping[str, str]) -> Naming:
    """Return the column's own name, with the reason if another name was expected."""
    metric = canonical_name(column) or _SECOND.get(column, "")
    own_name, reason = _own_name(column)
    if column in _NORMALISED:
        reason = "rewards after each group's mean is subtracted, 0 by construction: not the reward"
    elif metric in column_by_metric and metric != column:
        reason = f"{metric} is already the column {excerpt(column_by_metric[metric])}"
    return Naming(own_name, reason)


def _is_normalised(column: str, values: Floats) -> bool:
    if column == "rollout/rewards":
        return True
    finite = values[np.isfinite(values)]
    return column in _NORMALISED and len(finite) > 0 and float(np.abs(finite).max()) < 1e-3


# ------------------------------------------------------------ accuracy


def _held_out(column: str) -> re.Match[str] | None:
    if find_metric(column) is not None or canonical_name(column) == "eval/accuracy":
        return None
    return next((match for pattern in _HELD_OUT if (match := pattern.fullmatch(column))), None)


def _held_out_accuracies(columns: Mapping[str, Floats]) -> dict[str, Naming]:
    """Return the accuracies of each set of problems; that of the only set is the held-out accuracy."""
    best: dict[str, tuple[tuple[bool, int], str]] = {}
    for column, values in columns.items():
        match = _held_out(column)
        if match is not None and _are_shares(values, match["what"]):
            data, quantity, repeats = match["data"], match["what"], match.groupdict().get("n") or 0
            rank = (quantity.startswith(("acc", "pass")), int(repeats))
            best[data] = max(best.get(data, (rank, column)), (rank, column))
        eval_set = _EVAL_SET_PATTERN.fullmatch(column)
        if eval_set is not None and f"{column}{_TRUNCATED}" in columns and _are_fractions(values):
            best.setdefault(eval_set["data"], ((True, 0), column))
        term = _EVAL_TERM_PATTERN.fullmatch(column)
        if term is not None and _is_accurate(term["term"]) and _are_fractions(values):
            best.setdefault("", ((True, 0), column))
    is_alone = len(best) == 1 and not any(canonical_name(column) == "eval/accuracy" for column in columns)
    names = {}
    for data, (_, column) in best.items():
        own_name = re.sub(r"[^\w.@-]+", "_", data)[: MAX_CHARACTERS // 2]
        metric = "eval/accuracy" if is_alone or not data else f"eval/accuracy/{own_name}"
        set_description = "the only set" if is_alone else "one set"
        names[column] = Naming(metric, f"the accuracy on {set_description} of held-out problems")
    return names


def _is_accurate(term: str) -> bool:
    name = term.lower()
    while (short_name := _AFFIX_PATTERN.sub("", name)) != name:
        name = short_name
    return name in _ACCURATE


def _are_fractions(values: Floats) -> bool:
    finite = values[np.isfinite(values)]
    return len(finite) > 0 and float(finite.min()) >= 0 and float(finite.max()) <= 1


def _are_shares(values: Floats, quantity: str) -> bool:
    """Return whether values can be accuracies; rewards and scores only if they are fractions."""
    if quantity.startswith(("acc", "pass", "mean_acc")):
        finite = values[np.isfinite(values)]
        return len(finite) > 0 and float(finite.min()) >= 0 and float(finite.max()) <= MAX_PERCENT
    return _are_fractions(values)
