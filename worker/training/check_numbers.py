"""Compute the numbers and findings of a launch check with pure functions."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from backend.runs.check_report import (
    CheckFinding,
    CheckReport,
    ConfigChange,
    RewardProbe,
    RowsReport,
    SignalChance,
)
from worker.training.step_metrics import pass_at_k
from worker.types import Group

GROUP_SIZES = (4, 8, 16, 32)
POOR_SIGNAL_BELOW, GOOD_SIGNAL_FROM = 0.2, 0.5
"""Shares of groups with signal: a config is rated poor below POOR_SIGNAL_BELOW and good from GOOD_SIGNAL_FROM
on.
"""

MIN_FORM_LEAD = 0.2
"""Lead of another prompt form, as a share of completions, from which it is reported."""

MAX_HEALTHY_TRUNCATED = 0.3
"""Upper end of the healthy range of length/truncated_frac."""

REWARD_TOLERANCE = 1e-9
"""Mean rewards that differ by no more than this are treated as equal."""


def report_numbers(groups: Sequence[Group], *, group_size: int) -> dict[str, Any]:
    """Return the fields of a CheckReport that depend only on sampled groups."""
    counts = [
        (len(grades), sum(value >= 1 for value in grades)) for grades in map(_known_grades, groups) if grades
    ]
    rates = [correct / n for n, correct in counts]
    rewards = [pair for group in groups for pair in zip(group.rewards, group.correctness, strict=True)]
    truncations = [completion.is_truncated for group in groups for completion in group.completions]
    sizes = sorted({*GROUP_SIZES, group_size})
    return {
        "prompts": len(groups),
        "completions": max(len(group.completions) for group in groups),
        "pass_rate": finite_mean(rates),
        "pass_rate_error": standard_error(rates) if rates else None,
        "never_solved": finite_mean(float(rate == 0) for rate in rates),
        "always_solved": finite_mean(float(rate == 1) for rate in rates),
        "truncated": finite_mean(map(float, truncations)) or 0.0,
        "group_size": group_size,
        "signal": [chance for size in sizes if (chance := signal_chance(counts, size))],
        "reward": finite_mean(reward for reward, _ in rewards),
        "reward_right": finite_mean(
            reward for reward, correct in rewards if correct is not None and correct >= 1
        ),
    }


def signal_chance(counts: Sequence[tuple[int, int]], size: int) -> SignalChance | None:
    """Estimate the share of groups of `size` completions that have both correct and incorrect ones.

        mean over prompts of 1 - C(c, G) / C(n, G) - C(n - c, G) / C(n, G)

    with c correct of a prompt's n completions. It is the unbiased estimate of 1 - p^G - (1-p)^G, as pass@k
    is of 1 - (1-p)^k. Prompts with fewer than G completions are left out. Returns None if all prompts have
    fewer, or if a group is a single completion.
    """
    large_enough = [(n, correct_count) for n, correct_count in counts if n >= size]
    if not large_enough or size < 2:
        return None
    chances = [
        pass_at_k(n, correct_count, k=size) + pass_at_k(n, n - correct_count, k=size) - 1
        for n, correct_count in large_enough
    ]
    silent_below = 1 - 2 ** (-1 / size)
    return SignalChance(
        group_size=size,
        useful=float(np.mean(chances)),
        error=standard_error(chances),
        silent_below=silent_below,
        silent=float(np.mean([correct_count / n < silent_below for n, correct_count in large_enough])),
    )


def finite_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none, or if the mean is not finite."""
    known_values = [value for value in values if value is not None]
    with np.errstate(over="ignore", invalid="ignore"):
        average = float(np.mean(known_values)) if known_values else math.nan
    return average if math.isfinite(average) else None


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def make_findings(report: CheckReport, *, max_new_tokens: int, failure: str) -> list[CheckFinding]:
    """Return the findings, worst first. `failure` is a description of what could not be scored."""
    conclusions = [
        *_reference_findings(report),
        *_probe_findings(report),
        *_signal_findings(report),
        *_length_findings(report, max_new_tokens),
        *_form_findings(report),
        *_row_findings(report),
    ]
    if failure:
        conclusions.append(CheckFinding(level="warn", text=f"{failure}."))
    return sorted(conclusions, key=lambda finding: ("bad", "warn", "good").index(finding.level))


def _reference_findings(report: CheckReport) -> Iterator[CheckFinding]:
    references = report.references
    if references.wrong:
        yield CheckFinding(
            level="bad",
            text=f"The grader calls {references.wrong} of {references.checked} reference answers wrong: a "
            "policy that solves them would be punished. Fix the data or the grader.",
        )
    elif references.checked:
        yield CheckFinding(
            level="good", text=f"The grader accepts all {references.checked} reference answers."
        )
    if (
        references.reward is not None
        and report.reward is not None
        and references.reward < report.reward - REWARD_TOLERANCE
    ):
        average = f"an average attempt ({report.reward:.3g})"
        text = f"The reference answers earn {references.reward:.3g}, less than {average}."
        yield CheckFinding(level="warn", text=text)
    if references.missing:
        prompt_count = references.missing + references.checked
        yield CheckFinding(
            level="warn",
            text=f"{references.missing} of {prompt_count} prompts have no reference answer to check.",
        )


def _probe_findings(report: CheckReport) -> Iterator[CheckFinding]:
    verdicts = [_probe_finding(report, probe) for probe in report.probes]
    if any(verdicts):
        yield from (verdict for verdict in verdicts if verdict)
    elif report.reward is not None:
        text = f"No text without work earns more than an average attempt ({report.reward:.3g})."
        yield CheckFinding(level="good", text=text)


def _probe_finding(report: CheckReport, reward_probe: RewardProbe) -> CheckFinding | None:
    if reward_probe.reward is None or report.reward is None:
        return None
    earns = f"{reward_probe.title} earns {reward_probe.reward:.3g}"
    if report.reward_right is not None and reward_probe.reward > report.reward_right - REWARD_TOLERANCE:
        comparison = f"no less than a right answer ({report.reward_right:.3g})"
        return CheckFinding(level="bad", text=f"{earns}, {comparison}: the reward can be had for nothing.")
    if reward_probe.reward > report.reward + REWARD_TOLERANCE:
        text = (
            f"{earns}, more than an average attempt ({report.reward:.3g}): the policy may learn that first."
        )
        return CheckFinding(level="warn", text=text)
    return None


def _signal_findings(report: CheckReport) -> Iterator[CheckFinding]:
    if report.pass_rate is None:
        yield CheckFinding(level="warn", text="No completion could be graded, so the pass rate is unknown.")
        return
    at_run_size = next((chance for chance in report.signal if chance.group_size == report.group_size), None)
    if at_run_size is None:
        return
    share = f"{at_run_size.useful:.0%} of groups of {at_run_size.group_size} are expected to carry signal"
    if at_run_size.useful >= GOOD_SIGNAL_FROM:
        yield CheckFinding(level="good", text=f"{share}.")
        return
    level = "bad" if at_run_size.useful < POOR_SIGNAL_BELOW else "warn"
    if report.pass_rate > 0.5:
        advice = f"the problems are too easy (pass rate {report.pass_rate:.0%}); take harder ones"
    else:
        rare = f"{at_run_size.silent:.0%} have a pass rate below {at_run_size.silent_below:.1%}"
        advice = f"the problems are hard (pass rate {report.pass_rate:.0%}; {rare}); take easier ones"
    larger = [chance for chance in report.signal if chance.group_size > at_run_size.group_size]
    useful_size = next((chance for chance in larger if chance.useful >= GOOD_SIGNAL_FROM), None)
    if useful_size is not None:
        advice += f", or groups of {useful_size.group_size} ({useful_size.useful:.0%})"
    yield CheckFinding(level=level, text=f"Only {share}: {advice}.")


def _length_findings(report: CheckReport, max_new_tokens: int) -> Iterator[CheckFinding]:
    if report.truncated > MAX_HEALTHY_TRUNCATED:
        cap = f"sampling.max_new_tokens = {max_new_tokens}"
        yield CheckFinding(
            level="warn", text=f"{report.truncated:.0%} of the completions are truncated at {cap}."
        )


def _form_findings(report: CheckReport) -> Iterator[CheckFinding]:
    """Yield a finding if clearly more completions hold an answer in another prompt form."""
    own_share = next((form.answered for form in report.forms if form.name == "own"), None)
    other_forms = [form for form in report.forms if form.name != "own" and form.answered is not None]
    best = max(other_forms, key=lambda form: form.answered or 0, default=None)
    if (
        own_share is None
        or best is None
        or best.answered is None
        or best.answered < own_share + MIN_FORM_LEAD
    ):
        return
    yield CheckFinding(
        level="warn",
        text=f"{own_share:.0%} of a few completions hold a boxed answer; "
        f"asked as “{best.title}”, {best.answered:.0%} do.",
    )


def _row_findings(report: CheckReport) -> Iterator[CheckFinding]:
    for source_report in report.rows:
        scope = f"of {source_report.rows:,} training rows of {source_report.source}"
        if source_report.contaminated:
            yield _droppable_rows_finding(
                source_report,
                "contamination",
                f"{source_report.contaminated:,} {scope} overlap with held-out questions",
            )
        if source_report.duplicates:
            yield _droppable_rows_finding(
                source_report, "duplicates", f"{source_report.duplicates:,} {scope} repeat a question"
            )
        if source_report.near > (0 if "duplicates" in source_report.dropped else source_report.duplicates):
            similarity = "are near duplicates of another row or a held-out question"
            yield _droppable_rows_finding(
                source_report, "near_duplicates", f"{source_report.near:,} {scope} {similarity}"
            )


def _droppable_rows_finding(rows: RowsReport, field: str, text: str) -> CheckFinding:
    if field in rows.dropped:
        return CheckFinding(level="good", text=f"{text} and are left out.")
    change = ConfigChange(path=f"data.{field}", value="drop")
    return CheckFinding(level="warn", text=f"{text}: data.{field} = drop leaves them out.", change=change)


def _known_grades(group: Group) -> list[float]:
    return [value for value in group.correctness if value is not None]
