"""Detectors for the behaviour of the policy: entropy, length, text, and the mismatch with the sampler."""

import numpy as np

from backend.analysis.diagnosis.changes import Change, Direction, Sign
from backend.analysis.diagnosis.findings import Finding
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.outcome import Interval, Outcome
from backend.analysis.diagnosis.signs import (
    MAX_TRUNCATED_FRACTION,
    Answer,
    find_change,
    find_first_change,
    find_standing,
    has_any_metric,
    make_finding,
    missing_data,
)


def mismatch(log: Log, outcome: Outcome) -> Answer:
    """The sampler and the learner differ more than before, or more than training tolerates."""
    if gap := missing_data(
        log,
        "mismatch",
        "log-probabilities of the sampler (mismatch/k3)",
        "mismatch/k3",
        "mismatch/prob_diff_mean",
        "mismatch/ess",
    ):
        return gap
    signs = (
        Sign("mismatch/k3", "up", 3.0, 1e-4, is_log=True, threshold=1e-2),
        Sign("mismatch/prob_diff_mean", "up", 2.0, 1e-3, threshold=0.03),
    )
    if (change := find_first_change(log, outcome, *signs)) is not None:
        return make_finding("mismatch", change)
    return find_standing(log, "mismatch", "mismatch/k3", 5e-2)


def staleness(log: Log, outcome: Outcome) -> Answer:
    """Ratios or clipping grow, and batches are used for many updates or sampled by old weights."""
    age = log.find("sampling/staleness")
    is_old = age is not None and float(np.median(age[1].values)) >= 1
    updates = log.find("optim/updates")
    is_reused = updates is not None and float(np.median(updates[1].values)) > 1
    clipped = log.find("clip/frac")
    is_clipped = clipped is not None and float(np.median(clipped[1].values)) > 0
    if age is None and updates is None and clipped is None:
        needed_data = "the age of samples and the updates per step"
        return missing_data(log, "staleness", needed_data, "sampling/staleness", "optim/updates")
    if not (is_old or is_reused or is_clipped):
        return None
    change = find_first_change(
        log, outcome,
        Sign("sampling/staleness", "up", 1.5, 0.5, is_setting=True, threshold=0.9),
        Sign("clip/low_frac", "up", 2.0, 0.02, threshold=0.1),
        Sign("clip/high_frac", "up", 2.0, 0.02, threshold=0.1),
        Sign("clip/frac", "up", 2.0, 0.02, threshold=0.1),
        Sign("kl/old", "up", 3.0, 1e-3, is_log=True, threshold=0.1),
        Sign("ratio/max", "up", 3.0, 0.2, is_log=True, threshold=5.0),
        Sign("optim/updates", "up", 1.5, 0.5, is_setting=True, threshold=1.0),
    )  # fmt: skip
    if change is None:
        return None
    age_text = f"samples are {np.median(age[1].values):.0f} steps old" if is_old and age else ""
    reuse_text = f"{np.median(updates[1].values):.0f} updates a step" if is_reused and updates else ""
    clip_text = (
        f"{np.median(clipped[1].values):.2g} of the tokens are clipped in the median step: batches serve "
        "several updates, or samples are old"
        if is_clipped and clipped and not (is_old or is_reused)
        else ""
    )
    reason_text = " and ".join(reason for reason in (age_text, reuse_text, clip_text) if reason)
    is_far = change.extreme >= FAR_FROM_SAMPLER.get(change.metric, np.inf)
    is_cause = change.metric in {"sampling/staleness", "optim/updates"} or is_old or is_far
    return make_finding(
        "staleness", change, tier="specific" if is_cause else "consistent", evidence=(reason_text,)
    )


FAR_FROM_SAMPLER = {"clip/frac": 0.5, "kl/old": 1.0}
"""Values that show that most tokens were sampled by another policy than the one that learns from them."""


def router_drift(log: Log, outcome: Outcome) -> Answer:
    """The router of a mixture of experts chooses other experts for the same tokens."""
    if not has_any_metric(log, "router/expert_change_frac", "router/shift_mean"):
        return None  # not a mixture of experts
    signs = (
        Sign("router/expert_change_frac", "up", 1.5, 0.02, threshold=0.3),
        Sign("router/shift_mean", "down", 0.9, 0.02),
    )
    change = find_first_change(log, outcome, *signs)
    return None if change is None else make_finding("router_drift", change)


def entropy_explosion(log: Log, outcome: Outcome) -> Answer:
    """The entropy is far above its healthy level, at which text becomes nonsense."""
    if gap := missing_data(log, "entropy_explosion", "the policy's entropy", "policy/entropy"):
        return gap
    change = find_change(log, outcome, Sign("policy/entropy", "up", 2.0, 0.02, margin=0.25))
    if change is None:
        return find_standing(log, "entropy_explosion", "policy/entropy", RANDOM_TEXT_NATS)
    return _entropy_finding(log, outcome, "entropy_explosion", change, "down")


RANDOM_TEXT_NATS = 5.0
"""Entropy at which a policy chooses each token from 150 that are equally likely. A language model that
answers questions has less than 2.
"""


FIRST_POINTS = 10
"""Number of points of the start with which a low entropy is compared."""

CERTAIN_TEXT_NATS = 0.05
"""Entropy at which a policy samples nearly the same text each time: the likeliest token has a probability of
more than 0.99.
"""


def entropy_collapse(log: Log, outcome: Outcome) -> Answer:
    """The entropy is far below its healthy level, and the completions of a group are alike."""
    if gap := missing_data(log, "entropy_collapse", "the policy's entropy", "policy/entropy"):
        return gap
    change = find_change(log, outcome, Sign("policy/entropy", "down", 0.3, 0.02))
    if change is None and outcome.onset is not None:
        # It may have collapsed while the goal still rose, before the healthy window.
        first_steps = Interval(0, int(log.series["policy/entropy"].steps[:FIRST_POINTS][-1]))
        sign = Sign("policy/entropy", "down", 0.1, 0.02, threshold=CERTAIN_TEXT_NATS)
        change = find_change(log, outcome._replace(healthy=first_steps), sign)
    if change is None:
        return None
    return _entropy_finding(log, outcome, "entropy_collapse", change, "up")


def _entropy_finding(log: Log, outcome: Outcome, cause: str, change: Change, direction: Direction) -> Finding:
    """Return a finding about the entropy, with the onset of the loss term if that grew first."""
    term = find_change(
        log,
        outcome,
        Sign("loss/entropy", direction, 3.0 if direction == "up" else -3.0, 1e-3, is_setting=True),
    )
    if term is None or term.onset.sick > change.onset.sick:
        similarity = find_first_change(
            log,
            outcome,
            Sign("policy/distinct_frac", "down", 0.7, 0.02, threshold=0.4),
            Sign("groups/zero_variance_frac", "up", 1.3, 0.02, threshold=0.5),
        )
        is_specific = cause == "entropy_explosion" or similarity is not None
        evidence = (f"{similarity.metric} went to {similarity.extreme:.2f}",) if similarity else ()
        return make_finding(
            cause, change, tier="specific" if is_specific else "consistent", evidence=evidence
        )
    finding = make_finding(cause, change, evidence=(f"loss/entropy went to {term.extreme:.3g} before it",))
    return finding._replace(onset=term.onset, metrics=("loss/entropy", *finding.metrics))


def length_blowup(log: Log, outcome: Outcome) -> Answer:
    """Many completions are truncated at the maximum length, from the first step or increasingly."""
    if gap := missing_data(
        log, "length_blowup", "the length of completions", "length/mean", "length/truncated_frac"
    ):
        return gap
    if log.find("length/truncated_frac", min_points=5) is not None:
        return _find_truncation(log, outcome)
    if outcome.onset is None:
        return None  # longer answers are fine while the goal rises
    change = find_change(log, outcome, Sign("length/mean", "up", 1.5, 2.0))
    if change is None:
        return None
    evidence = ("the log does not say how many were truncated",)
    return make_finding("length_blowup", change, tier="consistent", evidence=evidence)._replace(
        title="Completions grew"
    )


def _find_truncation(log: Log, outcome: Outcome) -> Answer:
    truncation = find_change(log, outcome, Sign("length/truncated_frac", "up", 1.5, 0.02, threshold=0.1))
    if truncation is None:
        return _find_standing_truncation(log)
    growth = find_change(log, outcome, Sign("length/mean", "up", 1.5, 2.0))
    first_change = growth if growth is not None and growth.onset.sick < truncation.onset.sick else truncation
    finding = make_finding("length_blowup", first_change)
    if find_change(log, outcome, Sign("length/mean", "down", 0.7, 1.0)):
        return finding._replace(title="Completions are cut off at a shorter length")
    return finding


def _find_standing_truncation(log: Log) -> Finding | None:
    finding = find_standing(log, "length_blowup", "length/truncated_frac", MAX_TRUNCATED_FRACTION)
    first_value = log.series["length/truncated_frac"].finite().values[0]
    if finding is None or first_value <= MAX_TRUNCATED_FRACTION / 2:
        return None
    sentence = (
        "nearly every completion was cut off: the cap is too low, or the policy does not end its answers"
    )
    return finding._replace(
        title="Completions are truncated from the start", tier="specific", strength=1.0,
        evidence=(*finding.evidence, sentence),
    )  # fmt: skip


def length_collapse(log: Log, outcome: Outcome) -> Answer:
    """Completions are far shorter than in the healthy window, and truncation is not the reason."""
    if gap := missing_data(log, "length_collapse", "the length of completions", "length/mean"):
        return gap
    change = find_change(log, outcome, Sign("length/mean", "down", 0.6, 2.0))
    is_cut = find_change(log, outcome, Sign("length/truncated_frac", "up", 1.5, 0.02, threshold=0.1))
    return None if change is None or is_cut else make_finding("length_collapse", change)


def repetition(log: Log, outcome: Outcome) -> Answer:
    """Completions repeat the same pieces of text."""
    if gap := missing_data(
        log, "repetition", "the repetition of texts (text/repetition)", "text/repetition", "text/compression"
    ):
        return gap
    signs = (
        Sign("text/repetition", "up", 2.0, 0.02, threshold=0.2),
        Sign("text/compression", "down", 0.6, 0.02),
    )
    change = find_first_change(log, outcome, *signs)
    return None if change is None else make_finding("repetition", change)


def broken_format(log: Log, outcome: Outcome) -> Answer:
    """Thinking tags are opened twice or never closed, or answers are no longer boxed."""
    if gap := missing_data(
        log, "broken_format", "the structure of completions (text/structure_ok)", "text/structure_ok"
    ):
        return gap
    signs = (
        Sign("text/structure_broken", "up", 2.0, 0.02, threshold=0.1),
        Sign("text/structure_polluted", "up", 2.0, 0.02, threshold=0.1),
    )
    if (change := find_first_change(log, outcome, *signs)) is not None:
        return make_finding("broken_format", change)
    lost_structure = find_change(log, outcome, Sign("text/structure_ok", "down", 0.7, 0.02))
    return (
        None if lost_structure is None else make_finding("broken_format", lost_structure, tier="consistent")
    )


def language_mix(log: Log, outcome: Outcome) -> Answer:
    """Completions contain letters of a script other than that of the prompt."""
    if gap := missing_data(
        log,
        "language_mix",
        "the scripts of completions (text/unusual_script_frac)",
        "text/unusual_script_frac",
    ):
        return gap
    change = find_change(log, outcome, Sign("text/unusual_script_frac", "up", 2.0, 0.01, threshold=0.05))
    return None if change is None else make_finding("language_mix", change)
