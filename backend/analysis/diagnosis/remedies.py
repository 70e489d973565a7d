"""Suggest the first remedy for a cause, as a hypothesis and if possible as a config change."""

from collections.abc import Mapping

from backend.analysis.diagnosis.findings import Remedy
from backend.analysis.diagnosis.knobs import Changes, first_change, is_valid_change
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.suspects import LARGE_DEVIATION, Suspect
from backend.analysis.diagnosis.trainer_words import TRAINER_WORDS


def remedy_for(cause: str, log: Log, suspects: Mapping[str, Suspect], *, is_first: bool) -> Remedy:
    """Return the first remedy for a cause, which restores usual values if the config deviates from them.

    The remedy of the first cause restores all values that deviate by much, since together they may break a
    run that each alone does not. Config changes depend on the config of the run. For a log of another
    trainer, only a description is returned.
    """
    remedy_text, source = REMEDIES[cause]
    if not log.config:
        return Remedy(TRAINER_WORDS.get(log.trainer, {}).get(cause, remedy_text), {}, source)
    if cause in suspects:
        changes = suspects[cause].changes
        for restored_changes in ([_large_changes(suspects) | changes] if is_first else []) + [changes]:
            if is_valid_change(log.config, restored_changes):
                return Remedy(USUAL_REMEDY, restored_changes, "the run's preset and policy")
    return Remedy(remedy_text, first_change(cause, log.config), source)


def _large_changes(suspects: Mapping[str, Suspect]) -> Changes:
    """Return the changes that restore all values that deviate by much."""
    return {
        path: value
        for suspect in suspects.values()
        if suspect.size >= LARGE_DEVIATION
        for path, value in suspect.changes.items()
    }


USUAL_REMEDY = "Go back to the values of the preset and the policy, or of the run before the fork."

REMEDIES: dict[str, tuple[str, str]] = {
    "non_finite": (
        "A third of the learning rate from the checkpoint before; compute log-probabilities in float32.",
        "verl issue 721",
    ),
    "verifier": (
        "Run the reward on the reference answers: all must be right. Then fork from the checkpoint before.",
        "DAPO issue 28",
    ),
    "mismatch": (
        "Correct for the sampler (truncated importance weights, cap 2) and sample in the policy's precision.",
        "verl, rollout correction",
    ),
    "staleness": ("One update per batch, sampled by the weights that it updates.", "arXiv:2507.18071"),
    "router_drift": ("Replay the sampler's experts in the learner.", "arXiv:2510.11370"),
    "update_size": ("A third of the learning rate; gradient norm at most 1.", "arXiv:2503.14476"),
    "kl_pull": (
        "Estimate the KL by k3, coefficient at most 0.04: k1's gradient does not pull to the reference.",
        "arXiv:2510.01555",
    ),
    "kl_runaway": ("Twice the KL coefficient, or renew the reference every n steps.", "arXiv:2501.12948"),
    "entropy_explosion": (
        "No entropy bonus; where there is none, a third of the learning rate.",
        "verl issue 2738",
    ),
    "entropy_collapse": (
        "A higher upper clip (0.28 for 0.2); where nothing is clipped, an entropy bonus with a target.",
        "arXiv:2503.14476",
    ),
    "displacement": (
        "Add an imitation loss on right answers, and push away less from wrong ones.",
        "arXiv:2512.04220",
    ),
    "repetition": (
        "Leave truncated completions out of the loss, and add a KL penalty.",
        "arXiv:2506.13585",
    ),
    "broken_format": (
        "Require the format instead of adding its reward: no format, no reward.",
        "arXiv:2606.26027",
    ),
    "language_mix": ("Reward the prompt's script.", "arXiv:2506.10910"),
    "length_blowup": (
        "Leave truncated completions out of the loss, penalise length softly, or raise the cap.",
        "arXiv:2503.14476",
    ),
    "length_collapse": (
        "Take out rewards for brevity, require the format, or divide no loss by its completion's length.",
        "arXiv:2503.20783",
    ),
    "reward_hacking": (
        "Give the terms that wrong answers earn only to right ones, or a quarter of their weight.",
        "arXiv:2606.04923",
    ),
    "overfitting": (
        "Use more problems, add a KL penalty, or stop at the best evaluation.",
        "arXiv:2509.04259",
    ),
    "vanishing_signal": (
        "Resample groups without signal; use larger groups; use problems of medium difficulty.",
        "arXiv:2503.14476",
    ),
    "critic": (
        "Train the critic longer before the policy, with a learning rate of its own.",
        "arXiv:2504.05118",
    ),
    "dead_run": ("Check the learning rate, the schedule and which weights train.", "TRL issue 2703"),
}
"""Description and source of the remedy for each cause."""
