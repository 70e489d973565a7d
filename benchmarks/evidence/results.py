"""Results of the finished runs for each claim: tables with means and 95 % intervals, and a sentence."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from backend.metrics.statistics import Difference, Spread, difference, spread
from benchmarks.evidence.claim import END_STEPS, Claim, Expectation, Measure
from benchmarks.evidence.claims import CLAIMS
from benchmarks.evidence.first_round import FIRST
from benchmarks.evidence.outcome import Outcome, outcomes
from benchmarks.evidence.pilots import PILOTS
from benchmarks.evidence.second_round import SECOND
from benchmarks.evidence.store import wanted

HERE = Path(__file__).parent
EARLIER = "†"
EARLIER_DEFAULTS = (
    "k3 bounded by 10 nats; the book's presets without weight decay on gains and biases; ScaleRL in units of "
    "the deviation of raw rewards"
)
REPRODUCED, UNDECIDED, REFUTED = "reproduced", "undecided", "refuted"

Results = dict[str, list[dict[str, Any]]]
"""Finished runs of a claim by variant."""


def report() -> str:
    """Everything in Markdown: what came out in a line, then round by round."""
    return "\n\n".join(
        [
            _sum(),
            "### Second round",
            *(_sections(SECOND) or ["None of its runs has been trained yet."]),
            "### First round",
            *_sections(FIRST),
            "### Pilots of the second round",
            *_pilots(),
        ]
    )


def _sections(claims: Mapping[str, Claim]) -> list[str]:
    return [text for key in sorted(claims) if (text := _section(key))]


def _sum() -> str:
    """How every expectation has ended: by the second round where it has, else by the first."""
    words: dict[str, str] = {}
    for key, claim in FIRST.items():
        table = _table_of(key)
        for place, expected in enumerate(claim.expects, 1):
            words[f"{key} {place}"] = _first_word(expected, table)
    first = Counter(words.values())
    for key, claim in SECOND.items():
        for expected, outcome in zip(claim.expects, _outcomes(key), strict=True):
            if outcome is not None:
                words[expected.asks_again] = outcome.word
    last = Counter(words.values())
    return f"Of {len(words)} expectations: {_counted(last)}. After the first round: {_counted(first)}."


def _counted(words: Counter[str]) -> str:
    return ", ".join(f"{words[word]} {word}" for word in (REPRODUCED, REFUTED, UNDECIDED))


def _table_of(key: str) -> dict[str, dict[str, Spread]]:
    return measured(CLAIMS[key], {name: runs for name, runs in results_of(key).items() if runs})


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
    if key in SECOND:
        lines += map(_sentence, [claim] * len(claim.expects), claim.expects, _outcomes(key))
    else:
        lines += [verdict(claim, expectation, table) for expectation in claim.expects]
    if (HERE / f"{key}.png").exists():
        lines += ["", f"![Compare with the runs of ({key})](benchmarks/evidence/{key}.png)"]
    return "\n".join(lines)


def _outcomes(key: str) -> list[Outcome | None]:
    """Of a claim of the second round; None before all planned seeds have ended: it is looked at once."""
    claim, results = CLAIMS[key], results_of(key)
    if any(len(runs) < claim.seeds for runs in results.values()):
        return [None] * len(claim.expects)
    tokens = min(_tokens(run) for runs in results.values() for run in runs)

    def values(variant: str, title: str) -> dict[int, float]:
        measure = _measure(claim, title)
        return {run["seed"]: value_of(run, measure, tokens) for run in results[variant]}

    return outcomes(
        [
            (expected, values(expected.higher, expected.measure), values(expected.lower, expected.measure))
            for expected in claim.expects
        ]
    )


def _sentence(claim: Claim, expected: Expectation, outcome: Outcome | None) -> str:
    measure = _measure(claim, expected.measure)
    asked = (
        f"by {_number(expected.margin, measure)} or more, if at all"
        if expected.margin > 0
        else f"not lower by {_number(-expected.margin, measure)}"
    )
    head = f"- {expected.measure}, *{expected.higher}* above *{expected.lower}* ({asked}): "
    if outcome is None:
        return head + f"no look before all {claim.seeds} planned seeds have finished."
    found = outcome.found
    n = f"{found.n} pairs" if found.paired else f"n = {found.n}"
    shown = f"{_gap(found.mean, found.low, found.high, measure)}, {n}"
    more = f"; about {outcome.seeds} seeds would decide it" if outcome.seeds else ""
    return head + f"**{outcome.word}** at this size ({shown}{more})."


def _pilots() -> Iterator[str]:
    """A table of all pilots: whether the mechanism acts, and how far paired differences scatter."""
    rows = ["| pilot | question | variant | n | measures | difference to the first |", "|---" * 6 + "|"]
    for key, claim in PILOTS.items():
        table, results = _table_of(key), results_of(key)
        names = [name for name, runs in results.items() if runs]
        for name in names:
            cells = "; ".join(f"{one.title} {_cell(table[name][one.title], one)}" for one in claim.measures)
            apart = "" if name == names[0] else _apart(claim, results[names[0]], results[name])
            asked = claim.says if name == names[0] else ""
            rows.append(f"| {key[6:]} | {asked} | {name} | {len(results[name])} | {cells} | {apart} |")
    yield "\n".join(rows)


def _apart(claim: Claim, first: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    measure = claim.measures[0]
    by_seed = {run["seed"]: value_of(run, measure, 0) for run in first}
    gaps = [by_seed[run["seed"]] - value_of(run, measure, 0) for run in other if run["seed"] in by_seed]
    found = spread(gaps)
    if found.mean is None or found.std is None:
        return ""
    return f"{_plus(found.mean, measure)}, sd {_number(found.std, measure)}"


def _measure(claim: Claim, title: str) -> Measure:
    return next(one for one in claim.measures if one.title == title)


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
    """A plain sentence: whether a claim of the first round came out at this size."""
    head = f"- {expected.measure}, *{expected.higher}* above *{expected.lower}*: "
    gap, counts = _welch(expected, table)
    if gap is None:
        return head + "not enough finished runs yet."
    shown = _gap(gap.mean, gap.low, gap.high, _measure(claim, expected.measure))
    return head + f"**{_first_word(expected, table)}** at this size ({shown}, n = {counts})."


def _first_word(expected: Expectation, table: Mapping[str, Mapping[str, Spread]]) -> str:
    gap, _ = _welch(expected, table)
    if gap is None or gap.low is None or gap.high is None or gap.low <= 0 <= gap.high:
        return UNDECIDED
    return REPRODUCED if gap.low > 0 else REFUTED


def _welch(expected: Expectation, table: Mapping[str, Mapping[str, Spread]]) -> tuple[Difference | None, str]:
    """The difference of the means with Welch's interval, and the numbers of runs."""
    sides = [table.get(side, {}).get(expected.measure) for side in (expected.higher, expected.lower)]
    higher, lower = sides
    gap = difference(higher, lower) if higher and lower else None
    if gap is None or gap.low is None or higher is None or lower is None:
        return None, ""
    return gap, f"{higher.n} and {lower.n}"


def _gap(mean: float | None, low: float | None, high: float | None, measure: Measure) -> str:
    if mean is None or low is None or high is None:
        return "no interval"
    return f"{_plus(mean, measure)} [{_plus(low, measure)}, {_plus(high, measure)}]"


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
