"""Diagnose a log: determine the outcome, rank the causes and list what could not be judged."""

import math
from collections.abc import Mapping

from backend.analysis.diagnosis.detectors import DETECTORS
from backend.analysis.diagnosis.findings import Diagnosis, Finding, RankedCause, Unjudged
from backend.analysis.diagnosis.judge import judge
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.outcome import Interval, Outcome
from backend.analysis.diagnosis.remedies import remedy_for
from backend.analysis.diagnosis.signs import TITLES
from backend.analysis.diagnosis.suspects import LARGE_DEVIATION, Suspect, find_suspects

UNHEALTHY_VERDICTS = frozenset({"collapsed", "declining", "recovered", "never_learned"})

AFTERMATH = frozenset(
    {
        "entropy_explosion",
        "entropy_collapse",
        "kl_runaway",
        "length_blowup",
        "length_collapse",
        "mismatch",
        "vanishing_signal",
        "repetition",
        "broken_format",
        "language_mix",
    }
)
"""Findings that any broken policy shows."""

CONSEQUENCES: dict[str, frozenset[str]] = {
    "non_finite": frozenset(DETECTORS) - {"non_finite"},
    "verifier": AFTERMATH | {"update_size", "dead_run"},
    "kl_pull": AFTERMATH | {"update_size"},
    "staleness": AFTERMATH | {"update_size", "kl_pull"},
    "mismatch": (AFTERMATH | {"update_size"}) - {"mismatch"},
    "router_drift": frozenset({"mismatch", "update_size", "entropy_explosion", "length_blowup"}),
    "update_size": AFTERMATH | {"kl_pull"},
    "entropy_explosion": (AFTERMATH | {"update_size", "kl_pull"}) - {"entropy_explosion", "entropy_collapse"},
    "entropy_collapse": frozenset(
        {"vanishing_signal", "kl_runaway", "length_collapse", "overfitting", "reward_hacking", "update_size"}
    ),
    "displacement": AFTERMATH | {"update_size"},
    "repetition": frozenset({"length_blowup", "vanishing_signal", "broken_format"}),
    "broken_format": frozenset({"vanishing_signal", "repetition"}),
    "language_mix": frozenset({"vanishing_signal"}),
    "length_blowup": frozenset({"vanishing_signal", "broken_format"}),
    "length_collapse": frozenset({"vanishing_signal"}),
    "reward_hacking": AFTERMATH - {"mismatch", "entropy_explosion"},
    "overfitting": frozenset({"vanishing_signal", "kl_runaway", "entropy_collapse", "reward_hacking"}),
    "dead_run": frozenset({"vanishing_signal"}),
}
"""Findings that a cause explains, unless they began before it."""

CAUSE_ORDER = {cause: position for position, cause in enumerate(CONSEQUENCES)} | {
    "critic": 99,
    "kl_runaway": 99,
    "vanishing_signal": 99,
}
"""Precedence of causes with an onset at the same step. Lower numbers come first."""

STANDING_FAULTS = frozenset({"length_blowup", "vanishing_signal"})
"""Causes that prevent learning if they exist from the first step."""

STILL_LEARNING_STEPS = 10
"""Number of steps after non-finite values at which a new best goal proves that the weights are finite."""

SUSPECT_WEIGHT = 2.0
"""Weight of a deviation of the config by one order of magnitude, relative to that of the metrics."""

CONSISTENT_WEIGHT = 0.5
"""Weight of evidence that is consistent with several causes, relative to specific evidence."""


def diagnose(log: Log) -> Diagnosis:
    """Return the verdict on a run, with onset, causes and remedies."""
    outcome = judge(log)
    answers = [detector(log, outcome) for detector in DETECTORS.values()]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    unjudged_causes = tuple(answer for answer in answers if isinstance(answer, Unjudged))
    outcome = _with_dead_run(_with_non_finite(outcome, findings), findings)
    outcome = _with_standing_fault(outcome, findings)
    if outcome.verdict not in UNHEALTHY_VERDICTS:
        return Diagnosis(outcome, None, (), (), tuple(findings), unjudged_causes)
    candidates = [finding for finding in findings if _may_cause(finding, outcome)]
    suspects = find_suspects(log.config, log.parent_config) if log.config else {}
    candidates = with_suspects(candidates, suspects, outcome, log)
    causes = rank_causes(candidates, suspects, log, _width(outcome))
    root_causes = [ranked_cause.finding for ranked_cause in causes if not ranked_cause.explained_by]
    first_cause = min(root_causes, key=lambda finding: finding.onset.middle, default=None)
    onset = first_cause.onset if first_cause else outcome.onset
    signals = tuple(
        dict.fromkeys(
            finding.metrics[0]
            for finding in root_causes
            if first_cause and _overlap(finding.onset, first_cause.onset)
        )
    )
    candidate_causes = {finding.cause for finding in candidates}
    later = tuple(finding for finding in findings if finding.cause not in candidate_causes)
    return Diagnosis(outcome, onset, signals, causes, later, unjudged_causes)


STANDING_CAUSES = frozenset({"update_size", "kl_pull", "dead_run"})
"""Causes in the config that prevent learning without a fall of the goal."""


def with_suspects(
    findings: list[Finding], suspects: Mapping[str, Suspect], outcome: Outcome, log: Log
) -> list[Finding]:
    """Add the evidence of the config to the findings, and add findings that only the config supports."""
    results = [
        finding._replace(
            tier="specific",
            strength=max(finding.strength, min(1.0, suspects[finding.cause].size)),
            evidence=(suspects[finding.cause].description, *finding.evidence),
            is_in_config=True,
        )
        if finding.cause in suspects
        else finding
        for finding in findings
    ]
    causes = {finding.cause for finding in findings}
    for cause, suspect in suspects.items():
        if cause in causes or not (outcome.onset or cause in STANDING_CAUSES):
            continue
        consequences = [finding for finding in findings if finding.cause in CONSEQUENCES[cause]]
        first_consequence = min(consequences, key=lambda finding: finding.onset.middle, default=None)
        fall = outcome.onset or _first_step(log, outcome)
        shows_first = first_consequence is not None and first_consequence.onset.middle <= fall.middle
        onset, metric = (
            (first_consequence.onset, first_consequence.metrics[0])
            if first_consequence and shows_first
            else (fall, outcome.goal)
        )
        results.append(
            Finding(
                cause, TITLES[cause], onset, "specific" if suspect.size >= LARGE_DEVIATION else "consistent",
                min(1.0, suspect.size), 1.0, (suspect.description,), (metric,), is_in_config=True,
            )
        )  # fmt: skip
    return results


def _first_step(log: Log, outcome: Outcome) -> Interval:
    step = int(log.series[outcome.goal].steps[0]) if outcome.goal else 0
    return Interval(step, step)


def _with_non_finite(outcome: Outcome, findings: list[Finding]) -> Outcome:
    """Change the verdict to collapsed if numbers stay non-finite, unless
    the goal reached its best afterwards.
    """
    broken = next(
        (finding for finding in findings if finding.cause == "non_finite" and finding.lasting > 0.5), None
    )
    if broken is None or outcome.verdict in {"collapsed", "declining"}:
        return outcome
    if outcome.verdict == "healthy" and outcome.best_step > broken.onset.sick + STILL_LEARNING_STEPS:
        return outcome
    return outcome._replace(verdict="collapsed", onset=broken.onset, note="because of non-finite numbers")


def _with_dead_run(outcome: Outcome, findings: list[Finding]) -> Outcome:
    """Change an inconclusive verdict to never learned if the weights do not change."""
    is_dead = any(finding.cause == "dead_run" for finding in findings)
    if not is_dead or outcome.verdict not in {"inconclusive", "never_learned"} or not outcome.goal:
        return outcome
    return outcome._replace(verdict="never_learned", note="no update moved the weights")


def _with_standing_fault(outcome: Outcome, findings: list[Finding]) -> Outcome:
    """Change an inconclusive verdict to never learned if a fault from the first step prevents learning."""
    is_at_fault = any(finding.cause in STANDING_FAULTS and finding.onset.is_standing for finding in findings)
    is_undecided = outcome.verdict == "inconclusive" and not outcome.may_have_fallen
    if not is_at_fault or not is_undecided or not outcome.goal:
        return outcome
    return outcome._replace(verdict="never_learned", note="a fault from the first step prevents learning")


def _may_cause(finding: Finding, outcome: Outcome) -> bool:
    """Return whether a finding began before the goal had certainly fallen, so that it may be a cause."""
    return outcome.onset is None or finding.onset.healthy <= outcome.onset.sick


def _width(outcome: Outcome) -> float:
    """Return the uncertainty of an onset, in steps."""
    if outcome.onset is None:
        return 10.0
    return max(5.0, float(outcome.onset.sick - outcome.onset.healthy))


def rank_causes(
    findings: list[Finding], suspects: Mapping[str, Suspect], log: Log, width: float
) -> tuple[RankedCause, ...]:
    """Rank causes by strength, earliness and duration. Causes that others explain come last.

    A deviation of the config increases the weight of a cause.
    """
    first_onset = min((finding.onset.middle for finding in findings), default=0.0)
    sizes = {cause: suspect.size for cause, suspect in suspects.items()}
    explanations = _explanations(findings, sizes, width)
    scores = {}
    for finding in findings:
        # A change that may have begun as early as the first one is not later.
        delay = max(0.0, finding.onset.healthy - first_onset)
        earliness = math.exp(-delay / width)
        weight = 1.0 if finding.tier == "specific" else CONSISTENT_WEIGHT
        weight *= 1 + SUSPECT_WEIGHT * sizes.get(finding.cause, 0.0)
        scores[finding.cause] = finding.strength * earliness * finding.lasting * weight
    total = sum(score for cause, score in scores.items() if not explanations[cause]) or 1.0
    ordered_findings = sorted(
        findings,
        key=lambda finding: (bool(explanations[finding.cause]), -scores[finding.cause], finding.onset.middle),
    )
    return tuple(
        RankedCause(
            finding,
            0.0 if explanations[finding.cause] else scores[finding.cause] / total,
            explanations[finding.cause],
            remedy_for(finding.cause, log, suspects, is_first=finding is ordered_findings[0]),
        )
        for finding in ordered_findings
    )


def _explanations(findings: list[Finding], sizes: Mapping[str, float], width: float) -> dict[str, str]:
    """Return the cause that explains each finding, or "" for root causes, at which all chains end."""
    explainers = {
        finding.cause: [
            explainer.cause for explainer in findings if _explains(explainer, finding, sizes, width)
        ]
        for finding in findings
    }
    ranks = {finding.cause: (finding.onset.middle, CAUSE_ORDER[finding.cause]) for finding in findings}
    explanations = {cause: "" for cause, explainers_of_cause in explainers.items() if not explainers_of_cause}
    queue = list(explanations)
    while len(explanations) < len(explainers):
        if not queue:
            # The remaining causes form cycles. The earliest cause of a cycle that nothing else explains is a
            # root.
            unexplained = (cause for cause in explainers if cause not in explanations)
            queue = [
                min(
                    unexplained,
                    key=lambda cause: (len(_find_explaining_causes(cause, explainers)), ranks[cause]),
                )
            ]
            explanations[queue[0]] = ""
        cause = queue.pop(0)  # breadth-first, so that chains are short
        effects = [
            effect
            for effect, explainers_of_effect in explainers.items()
            if cause in explainers_of_effect and effect not in explanations
        ]
        explanations |= dict.fromkeys(effects, cause)
        queue += effects
    return explanations


def _find_explaining_causes(cause: str, explainers: dict[str, list[str]]) -> set[str]:
    """Return the causes that explain a cause, directly or through others."""
    ancestors: set[str] = set()
    queue = [cause]
    while queue:
        new_causes = set(explainers[queue.pop()]) - ancestors
        ancestors |= new_causes
        queue += new_causes
    return ancestors


def _explains(explainer: Finding, finding: Finding, sizes: Mapping[str, float], width: float) -> bool:
    explainer_size, finding_size = sizes.get(explainer.cause, 0.0), sizes.get(finding.cause, 0.0)
    if finding_size >= LARGE_DEVIATION and explainer_size < finding_size:
        return False  # the config explains the finding
    if (
        finding.cause in CONSEQUENCES.get(explainer.cause, frozenset()) | {"reward_hacking"}
        and explainer_size >= LARGE_DEVIATION + finding_size
    ):
        return explainer.onset.middle <= finding.onset.middle + width / 2  # the config broke the policy
    is_earlier = explainer.onset.middle < finding.onset.middle
    is_weak = explainer.tier == "consistent" and finding.tier == "specific" and not is_earlier
    is_late = explainer.onset.middle > finding.onset.middle + width / 2
    is_consequence = finding.cause in CONSEQUENCES.get(explainer.cause, ())
    return is_consequence and not is_weak and not is_late and not _precedes(finding, explainer)


def _precedes(finding: Finding, second: Finding) -> bool:
    """Return whether two causes explain each other and the first has the earlier onset or a lower
    CAUSE_ORDER.
    """
    if second.cause not in CONSEQUENCES.get(finding.cause, ()):
        return False
    return (finding.onset.middle, CAUSE_ORDER[finding.cause]) < (
        second.onset.middle,
        CAUSE_ORDER[second.cause],
    )


def _overlap(first: Interval, second: Interval) -> bool:
    return first.healthy <= second.sick and second.healthy <= first.sick
