"""Results of the finished runs for each claim: tables with means and 95 % intervals, and a sentence."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from backend.metrics.statistics import Spread, difference, spread
from benchmarks.evidence.claim import END_STEPS, Claim, Expectation, Measure
from benchmarks.evidence.claims import CLAIMS
from benchmarks.evidence.store import wanted

HERE = Path(__file__).parent
EARLIER = "†"
EARLIER_DEFAULTS = (
    "k3 bounded by 10 nats; the book's presets without weight decay on gains and biases; ScaleRL in units of "
    "the deviation of raw rewards"
)
REPRODUCED, NOT_REPRODUCED, OPPOSITE = "reproduced", "not reproduced", "the opposite"

Results = dict[str, list[dict[str, Any]]]
"""Finished runs of a claim by variant."""


def report() -> str:
    """Everything in Markdown: what came out in a line, then claim by claim."""
    sections = {key: text for key in sorted(CLAIMS) if (text := _section(key))}
    return "\n\n".join([_sum_of(sections), *sections.values()])


def _sum_of(sections: Mapping[str, str]) -> str:
    counted = {
        words: {key: times for key, text in sections.items() if (times := text.count(f"**{words}**"))}
        for words in (REPRODUCED, NOT_REPRODUCED, OPPOSITE)
    }
    total = sum(sum(times.values()) for times in counted.values())
    parts = (
        f"{sum(times.values())} {words} ({', '.join(f'{key}: {n}' for key, n in times.items())})"
        for words, times in counted.items()
        if times
    )
    return f"Of {total} expectations: {'; '.join(parts)}."


def results_of(key: str) -> Results:
    """The finished runs of a claim, by variant in the claim's order."""
    found: Results = {variant: [] for variant in CLAIMS[key].variants}
    for one in wanted(key):
        if result := one.found():
            found[one.variant].append(result)
    return found


def _section(key: str) -> str:
    claim, results = CLAIMS[key], results_of(key)
    trained = {variant: runs for variant, runs in results.items() if runs}
    if not trained:
        return ""
    table = measured(claim, trained)
    lines = [f"**({key}) {claim.title}.** {claim.says}", "", *_table(claim, trained, table), ""]
    lines += [verdict(claim, expectation, table) for expectation in claim.expects]
    if (HERE / f"{key}.png").exists():
        lines += ["", f"![Compare with the runs of ({key})](benchmarks/evidence/{key}.png)"]
    return "\n".join(lines)


def measured(claim: Claim, results: Results) -> dict[str, dict[str, Spread]]:
    """Variant -> title of the measure -> mean and interval over seeds."""
    tokens = min((_tokens(run) for runs in results.values() for run in runs), default=0.0)
    return {
        variant: {
            measure.title: spread([value_of(run, measure, tokens) for run in runs])
            for measure in claim.measures
        }
        for variant, runs in results.items()
    }


def value_of(run: Mapping[str, Any], measure: Measure, tokens: float) -> float:
    """One number of one run; NaN where the run has none."""
    if measure.how == "at_tokens":
        return _at_tokens(run, measure.metric, tokens)
    values = [float(value) for value in run["series"].get(measure.metric, ()) if value is not None]
    if not values:
        return math.nan
    match measure.how:
        case "first":
            return values[0]
        case "last":
            return values[-1]
        case "max":
            return max(values)
        case "mean":
            return math.fsum(values) / len(values)
        case "end":
            end = values[-END_STEPS:]
            return math.fsum(end) / len(end)


def _tokens(run: Mapping[str, Any]) -> float:
    counted = [float(value) for value in run["series"].get("tokens/total", ()) if value is not None]
    return counted[-1] if counted else 0.0


def _at_tokens(run: Mapping[str, Any], metric: str, tokens: float) -> float:
    """A metric where a run had generated so many tokens, on the straight line between two records."""
    counts = run["series"].get("tokens/total", ())
    points = [
        (float(count or 0), float(value))
        for count, value in zip(counts, run["series"].get(metric, ()), strict=True)
        if value is not None
    ]
    for (left, low), (right, high) in pairwise(points):
        if left <= tokens <= right:
            return low + (high - low) * (tokens - left) / max(right - left, 1)
    return points[-1][1] if points else math.nan


def verdict(claim: Claim, expected: Expectation, table: Mapping[str, Mapping[str, Spread]]) -> str:
    """A plain sentence: whether the claim came out at this size."""
    measure = next(one for one in claim.measures if one.title == expected.measure)
    sides = [table.get(side, {}).get(expected.measure) for side in (expected.higher, expected.lower)]
    head = f"- {expected.measure}, *{expected.higher}* above *{expected.lower}*: "
    higher, lower = sides
    gap = difference(higher, lower) if higher and lower else None
    if gap is None or gap.low is None or gap.high is None or higher is None or lower is None:
        return head + "not enough finished runs yet."
    shown = f"{_plus(gap.mean, measure)} [{_plus(gap.low, measure)}, {_plus(gap.high, measure)}]"
    n = f"n = {higher.n} and {lower.n}"
    if gap.low > 0:
        return head + f"**{REPRODUCED}** at this size ({shown}, {n})."
    if gap.high < 0:
        return head + f"**{OPPOSITE}** came out at this size ({shown}, {n})."
    return head + f"**{NOT_REPRODUCED}** at this size: no clear difference ({shown}, {n})."


def _table(claim: Claim, results: Results, table: Mapping[str, Mapping[str, Spread]]) -> Iterator[str]:
    titles = [measure.title for measure in claim.measures]
    yield "| variant | n | " + " | ".join(titles) + " |"
    yield "|---" * (len(titles) + 2) + "|"
    for variant, runs in results.items():
        cells = [_cell(table[variant][measure.title], measure) for measure in claim.measures]
        mark = EARLIER if any(run["is_earlier"] for run in runs) else ""
        yield f"| {variant}{mark} | {len(runs)}{_endings(runs)} | " + " | ".join(cells) + " |"
    if earlier := sum(run["is_earlier"] for runs in results.values() for run in runs):
        total = sum(map(len, results.values()))
        yield f"\n{EARLIER} {earlier} of {total} runs were trained with earlier defaults: {EARLIER_DEFAULTS}."


def _endings(runs: list[dict[str, Any]]) -> str:
    early = sum(run["status"] != "finished" for run in runs)
    return f" ({early} ended early)" if early else ""


def _cell(found: Spread, measure: Measure) -> str:
    if found.mean is None:
        return ""
    half = "" if found.high is None else f" ± {_number(found.high - found.mean, measure)}"
    return f"{_number(found.mean, measure)}{half}"


def _number(value: float, measure: Measure) -> str:
    return (
        f"{100 * value:.1f} %"
        if measure.percent
        else f"{value:,.4g}"
        if abs(value) < 1e4
        else f"{value:,.0f}"
    )


def _plus(value: float, measure: Measure) -> str:
    return ("+" if value >= 0 else "−") + _number(abs(value), measure)
