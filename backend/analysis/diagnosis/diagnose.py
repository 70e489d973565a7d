"""The diagnosis of a log: outcome, causes in order, first signal, and what could not be judged."""

import math
from collections.abc import Mapping

from backend.analysis.diagnosis.detectors import DETECTORS
from backend.analysis.diagnosis.findings import Diagnosis, Finding, Ranked, Unjudged
from backend.analysis.diagnosis.judge import judge
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.outcome import Interval, Outcome
from backend.analysis.diagnosis.remedies import remedy_for
from backend.analysis.diagnosis.signs import TITLES
from backend.analysis.diagnosis.suspects import LARGE, Suspect, suspects_of

ILL = frozenset({"collapsed", "declining", "recovered", "never_learned"})

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
"""What any policy shows that has been broken."""

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
"""Which findings a cause explains away, unless they began before it."""

ORDER = {cause: position for position, cause in enumerate(CONSEQUENCES)} | {
    "critic": 99,
    "kl_runaway": 99,
    "vanishing_signal": 99,
}
"""Order of causes with an onset at the same step; earlier ones take precedence."""

AT_FAULT = frozenset({"length_blowup", "vanishing_signal"})
"""Causes that keep a policy from learning if they stand from the first step on."""

STILL_LEARNING = 10
"""Steps after which a best value shows that the weights are finite, whatever the trainer logs."""

SUSPECT_WEIGHT = 2.0
"""Weight of a deviation of the config by an order of magnitude, beside that of the metrics."""

CONSISTENT_WEIGHT = 0.5
"""Weight of evidence for more than one cause, relative to evidence for a specific cause."""


def diagnose(log: Log) -> Diagnosis:
    """Verdict on a run, with onset, causes and remedies."""
    outcome = judge(log)
    answers = [detector(log, outcome) for detector in DETECTORS.values()]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    unjudged = tuple(answer for answer in answers if isinstance(answer, Unjudged))
    outcome = _with_dead_run(_with_non_finite(outcome, findings), findings)
    outcome = _with_standing_fault(outcome, findings)
    if outcome.verdict not in ILL:
        return Diagnosis(outcome, None, (), (), tuple(findings), unjudged)
    before = [finding for finding in findings if _may_cause(finding, outcome)]
    suspects = suspects_of(log.config, log.parent_config) if log.config else {}
    before = with_suspects(before, suspects, outcome, log)
    causes = ranked(before, suspects, log, _width(outcome))
    root_causes = [ranked_cause.finding for ranked_cause in causes if not ranked_cause.explained_by]
    first = min(root_causes, key=lambda finding: finding.onset.middle, default=None)
    onset = first.onset if first else outcome.onset
    signals = tuple(
        dict.fromkeys(
            finding.metrics[0] for finding in root_causes if first and _overlap(finding.onset, first.onset)
        )
    )
    named = {finding.cause for finding in before}
    later = tuple(finding for finding in findings if finding.cause not in named)
    return Diagnosis(outcome, onset, signals, causes, later, unjudged)


STANDING = frozenset({"update_size", "kl_pull", "dead_run"})
"""Causes in the config for which a run never learns."""


def with_suspects(
    findings: list[Finding], suspects: Mapping[str, Suspect], outcome: Outcome, log: Log
) -> list[Finding]:
    """Return the findings with the config's evidence, and those that the config alone speaks for."""
    told = [
        finding._replace(
            tier="specific",
            strength=max(finding.strength, min(1.0, suspects[finding.cause].size)),
            evidence=(suspects[finding.cause].words, *finding.evidence),
            is_in_config=True,
        )
        if finding.cause in suspects
        else finding
        for finding in findings
    ]
    named = {finding.cause for finding in findings}
    for cause, suspect in suspects.items():
        if cause in named or not (outcome.onset or cause in STANDING):
            continue
        consequences = [finding for finding in findings if finding.cause in CONSEQUENCES[cause]]
        first = min(consequences, key=lambda finding: finding.onset.middle, default=None)
        fall = outcome.onset or _first_step(log, outcome)
        shows_first = first is not None and first.onset.middle <= fall.middle
        onset, metric = (first.onset, first.metrics[0]) if first and shows_first else (fall, outcome.goal)
        told.append(
            Finding(
                cause, TITLES[cause], onset, "specific" if suspect.size >= LARGE else "consistent",
                min(1.0, suspect.size), 1.0, (suspect.words,), (metric,), is_in_config=True,
            )
        )  # fmt: skip
    return told


def _first_step(log: Log, outcome: Outcome) -> Interval:
    step = int(log.series[outcome.goal].steps[0]) if outcome.goal else 0
    return Interval(step, step)


def _with_non_finite(outcome: Outcome, findings: list[Finding]) -> Outcome:
    """A run whose numbers stay not finite has collapsed, unless its goal rose to its best afterwards."""
    broken = next(
        (finding for finding in findings if finding.cause == "non_finite" and finding.lasting > 0.5), None
    )
    if broken is None or outcome.verdict in {"collapsed", "declining"}:
        return outcome
    if outcome.verdict == "healthy" and outcome.best_step > broken.onset.sick + STILL_LEARNING:
        return outcome
    return outcome._replace(verdict="collapsed", onset=broken.onset, note="by numbers that are not finite")


def _with_dead_run(outcome: Outcome, findings: list[Finding]) -> Outcome:
    """Weights that do not move cannot have learned, whatever the noise of the goal leaves open."""
    is_dead = any(finding.cause == "dead_run" for finding in findings)
    if not is_dead or outcome.verdict not in {"inconclusive", "never_learned"} or not outcome.goal:
        return outcome
    return outcome._replace(verdict="never_learned", note="no update moved the weights")


def _with_standing_fault(outcome: Outcome, findings: list[Finding]) -> Outcome:
    """Completions that never end and groups that never differ teach nothing: no rise hides in the noise."""
    is_at_fault = any(finding.cause in AT_FAULT and finding.onset.is_standing for finding in findings)
    if not is_at_fault or outcome.verdict != "inconclusive" or not outcome.goal:
        return outcome
    return outcome._replace(verdict="never_learned")


def _may_cause(finding: Finding, outcome: Outcome) -> bool:
    """What began after the goal had surely fallen did not make it fall."""
    return outcome.onset is None or finding.onset.healthy <= outcome.onset.sick


def _width(outcome: Outcome) -> float:
    """Steps by which an onset may be off."""
    if outcome.onset is None:
        return 10.0
    return max(5.0, float(outcome.onset.sick - outcome.onset.healthy))


def ranked(
    findings: list[Finding], suspects: Mapping[str, Suspect], log: Log, width: float
) -> tuple[Ranked, ...]:
    """Causes by strength, earliness and duration; one that another explains stands behind all others.

    The config's deviation multiplies the weight of a cause.
    """
    first = min((finding.onset.middle for finding in findings), default=0.0)
    sizes = {cause: suspect.size for cause, suspect in suspects.items()}
    explained = _explanations(findings, sizes, width)
    scores = {}
    for finding in findings:
        earliness = math.exp(-(finding.onset.middle - first) / width)
        weight = 1.0 if finding.tier == "specific" else CONSISTENT_WEIGHT
        weight *= 1 + SUSPECT_WEIGHT * sizes.get(finding.cause, 0.0)
        scores[finding.cause] = (finding.strength * earliness * finding.lasting * weight, earliness)
    total = sum(score for cause, (score, _) in scores.items() if not explained[cause]) or 1.0
    causes = [
        Ranked(
            finding,
            0.0 if explained[finding.cause] else scores[finding.cause][0] / total,
            scores[finding.cause][1],
            explained[finding.cause],
            remedy_for(finding.cause, log, suspects.get(finding.cause)),
        )
        for finding in findings
    ]
    return tuple(
        sorted(
            causes,
            key=lambda ranked_cause: (
                bool(ranked_cause.explained_by),
                -ranked_cause.share,
                ranked_cause.finding.onset.middle,
            ),
        )
    )


def _explanations(findings: list[Finding], sizes: Mapping[str, float], width: float) -> dict[str, str]:
    """Cause that explains each finding; "" for one that stands for itself, at which every chain ends."""
    explainers = {
        finding.cause: [
            explainer.cause for explainer in findings if _explains(explainer, finding, sizes, width)
        ]
        for finding in findings
    }
    ranks = {finding.cause: (finding.onset.middle, ORDER[finding.cause]) for finding in findings}
    explanations = {cause: "" for cause, explainers_of_cause in explainers.items() if not explainers_of_cause}
    waiting = list(explanations)
    while len(explanations) < len(explainers):
        if not waiting:
            # The rest explain each other in a circle: the first of those that nothing outside it explains.
            unexplained = (cause for cause in explainers if cause not in explanations)
            waiting = [min(unexplained, key=lambda cause: (len(_behind(cause, explainers)), ranks[cause]))]
            explanations[waiting[0]] = ""
        cause = waiting.pop(0)  # the nearest first: chains stay short
        named = [
            effect
            for effect, explainers_of_effect in explainers.items()
            if cause in explainers_of_effect and effect not in explanations
        ]
        explanations |= dict.fromkeys(named, cause)
        waiting += named
    return explanations


def _behind(cause: str, explainers: dict[str, list[str]]) -> set[str]:
    """Causes that explain one, directly or through others."""
    behind: set[str] = set()
    waiting = [cause]
    while waiting:
        new = set(explainers[waiting.pop()]) - behind
        behind |= new
        waiting += new
    return behind


def _explains(explainer: Finding, finding: Finding, sizes: Mapping[str, float], width: float) -> bool:
    size, other_size = sizes.get(explainer.cause, 0.0), sizes.get(finding.cause, 0.0)
    if other_size >= LARGE and size < other_size:
        return False  # the config explains it
    if (
        finding.cause in CONSEQUENCES.get(explainer.cause, frozenset()) | {"reward_hacking"}
        and size >= LARGE + other_size
    ):
        return explainer.onset.middle <= finding.onset.middle + width / 2  # a policy that the config broke
    is_earlier = explainer.onset.middle < finding.onset.middle
    is_weak = explainer.tier == "consistent" and finding.tier == "specific" and not is_earlier
    is_late = explainer.onset.middle > finding.onset.middle + width / 2
    is_consequence = finding.cause in CONSEQUENCES.get(explainer.cause, ())
    return is_consequence and not is_weak and not is_late and not _precedes(finding, explainer)


def _precedes(finding: Finding, second: Finding) -> bool:
    """Whether two causes explain each other and the first is the earlier, or stands earlier in ORDER."""
    if second.cause not in CONSEQUENCES.get(finding.cause, ()):
        return False
    return (finding.onset.middle, ORDER[finding.cause]) < (second.onset.middle, ORDER[second.cause])


def _overlap(first: Interval, second: Interval) -> bool:
    return first.healthy <= second.sick and second.healthy <= first.sick
