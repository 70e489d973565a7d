"""Sentences that explain the verdict of a trial."""

from collections.abc import Sequence

from backend.experiments.trials.plan import REMEDY_NAMES, SIGNIFICANCE_LEVEL, healthy_runs_needed
from backend.experiments.trials.schemas import NO_CHANGE, ArmResult, RepeatResult, TrialVerdict

SUBJECT_BY_DIAGNOSIS = {
    "collapsed": "The collapse",
    "declining": "The decline",
    "recovered": "The fall",
    "never_learned": "The failure to learn",
}
"""Name of the trouble by the verdict on the run."""


def sentences(trouble_found: str, verdict: TrialVerdict, next_cause: str = "") -> list[str]:
    """Return the sentences: recurrences and p-value of each arm, effects on the goal, and uncounted runs.

    `next_cause` is the title of a cause to try if no arm healed.
    """
    control, *planned_arms = verdict.arms
    arms = [arm for arm in planned_arms if not arm.is_pending]
    trouble = SUBJECT_BY_DIAGNOSIS.get(trouble_found, "The trouble")
    verdict_sentences = []
    for arm in arms:
        verdict_sentences.append(
            _comparison_sentence(trouble, arm, control) if verdict.complete else _so_far(arm, control)
        )
        if verdict.complete and verdict.goal and (sentence := _goal_sentence(verdict.goal, arm, control)):
            verdict_sentences.append(sentence)
    if verdict.complete:
        verdict_sentences += _healing_sentences(arms, next_cause)
    verdict_sentences += [sentence for arm in verdict.arms if (sentence := _uncounted_sentence(arm))]
    return [*verdict_sentences, _repeat_sentence(verdict.repeat)]


def _healing_sentences(arms: Sequence[ArmResult], next_cause: str) -> list[str]:
    """Return a sentence about the arm that healed, or that none did and what to try next."""
    healer = next((arm for arm in arms if arm.spared >= healthy_runs_needed(arm.planned)), None)
    if healer is not None:
        return [f"{healer.spared} of {healer.planned} runs stayed healthy {_arm_label(healer)}: it heals."]
    if not arms:
        return []
    needed_runs = f"{healthy_runs_needed(arms[0].planned)} of {arms[0].planned}"
    sentence = f"Nothing that was tried heals: {needed_runs} runs would have to stay healthy."
    return [sentence, f"Next, try the remedy of “{next_cause}”."] if next_cause else [sentence]


def _arm_label(arm: ArmResult) -> str:
    return f"with the {arm.name}" if arm.name in REMEDY_NAMES else f"with “{arm.name}”"


def _share_text(arm: ArmResult) -> str:
    return f"{arm.recurred} of {arm.recurred + arm.spared}"


def _so_far(arm: ArmResult, control: ArmResult) -> str:
    ended_count, control_ended = (arm_.planned - arm_.waiting for arm_ in (arm, control))
    return (
        f"So far: {control_ended} of {control.planned} runs without change have ended and "
        f"{ended_count} of {arm.planned} {_arm_label(arm)}."
    )


def _comparison_sentence(trouble: str, arm: ArmResult, control: ArmResult) -> str:
    if arm.p is None:
        arm_phrase = "without change" if not control.recurred + control.spared else _arm_label(arm)
        return f"No verdict on the arm {_arm_label(arm)}: no run {arm_phrase} could be judged."
    if not control.recurred:
        return (
            f"{trouble} did not recur without change ({_share_text(control)} runs; "
            f"{_share_text(arm)} {_arm_label(arm)}): it depended on the seed, "
            "so the trial cannot say whether the remedy helps."
        )
    test = f"Fisher's exact test, one-sided {p_value(arm.p)}"
    if arm.p <= SIGNIFICANCE_LEVEL:
        opening = trouble
    else:
        opening = f"No evidence that it helps: {trouble[0].lower()}{trouble[1:]}"
    arm_text = f"{_share_text(arm)} {_arm_label(arm)}"
    return f"{opening} recurred in {_share_text(control)} runs without change and in {arm_text} ({test})."


def p_value(p: float) -> str:
    """Return a p-value in the style of papers: `p = .004` or `p < .001`."""
    if p < 0.001:
        return "p < .001"
    if p > 0.999:
        return "p = 1"
    digits = f"{p:.1g}" if p < 0.01 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"
    return f"p = {digits}".replace("0.", ".")


def _goal_sentence(goal: str, arm: ArmResult, control: ArmResult) -> str:
    if arm.goal_end is None or control.goal_end is None:
        return ""
    return (
        f"{goal} ended at {arm.goal_end:.3g} {_arm_label(arm)} and at {control.goal_end:.3g} without "
        "change, on average."
    )


def _uncounted_sentence(arm: ArmResult) -> str:
    """Return a sentence about the runs that are not used in comparisons."""
    counts = (
        (arm.failed, "failed"),
        (arm.stopped, "stopped"),
        (arm.unjudged, "without a verdict"),
        (arm.deleted, "deleted"),
    )
    phrases = [f"{count} {description}" for count, description in counts if count]
    arm_phrase = "without change" if arm.name == NO_CHANGE else _arm_label(arm)
    return f"Not counted {arm_phrase}: {', '.join(phrases)}." if phrases else ""


def _repeat_sentence(repeat: RepeatResult) -> str:
    match repeat.state:
        case "repeats":
            return "With its own seed and without change the run repeats itself bit for bit."
        case "differs":
            return (
                f"With its own seed and without change the run differs from step {repeat.step} on "
                f"(first in {repeat.metric}): it does not repeat bit for bit on this device."
            )
        case "waiting":
            return "The repetition with the run's own seed has not ended."
        case _:
            return "The repetition with the run's own seed is missing and cannot be compared."
