"""Remedies: what to try first against a cause, as a change of a run's config. Each is a hypothesis."""

from backend.diagnosis.findings import Remedy
from backend.diagnosis.log import Log

MOST_KL = 0.04
"""Coefficient of k3 in DeepSeekMath (arXiv:2402.03300), section 4.1; that of a sum is no measure for it."""


def remedy_for(cause: str, log: Log) -> Remedy:
    """The first remedy of a cause; its values follow the run's config where that is known."""
    words, source = REMEDIES[cause]
    return Remedy(words, changes_for(cause, log), source)


def changes_for(cause: str, log: Log) -> dict[str, object]:
    """Fields by dotted path; empty for a foreign log or where the remedy is no knob."""
    if not log.config:
        return {}
    lr = log.setting("optimizer.lr") or 3e-4
    norm = log.setting("optimizer.max_grad_norm") or 1.0
    coefficient = log.setting("objective.kl.coef")
    match cause:
        case "update_size" | "entropy_explosion" | "non_finite":
            lower: dict[str, object] = {"optimizer.lr": float(f"{lr / 3:.3g}")}
            return lower | ({"optimizer.max_grad_norm": 1.0} if norm > 1 else {})
        case "staleness":
            return {"updates.epochs": 1, "updates.minibatches": 1, "sampling.staleness": 0}
        case "mismatch":
            return {"sampling.precision": "policy", "objective.correction": {"type": "token_tis", "cap": 2.0}}
        case "kl_pull":
            return {"objective.kl": {"type": "k3", "coef": min(coefficient or 0.01, MOST_KL)}}
        case "kl_runaway":
            return {"objective.kl": {"type": "k3", "coef": 2 * coefficient if coefficient else 0.01}}
        case "entropy_collapse":
            return {"objective.surrogate.eps_high": 0.28}
        case "displacement":
            return {"objective.nll": {"type": "positive", "coef": 0.1}}
        case "length_blowup" | "repetition":
            return {"length.truncated": {"type": "mask"}}
        case "vanishing_signal":
            return {"filters.groups": {"type": "zero_variance"}, "filters.refill": {"type": "dynamic"}}
        case _:
            return {}


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
        "Estimate the KL by k3, coefficient at most 0.04: the gradient of k1 is no pull to the reference.",
        "arXiv:2510.01555",
    ),
    "kl_runaway": ("Twice the KL coefficient, or renew the reference every n steps.", "arXiv:2501.12948"),
    "entropy_explosion": ("A third of the learning rate, no entropy bonus.", "verl issue 2738"),
    "entropy_collapse": (
        "A higher upper clip (0.28), so that rare tokens may become likelier.",
        "arXiv:2503.14476",
    ),
    "displacement": (
        "Imitate right answers beside the policy's loss, and push less from wrong ones.",
        "arXiv:2512.04220",
    ),
    "repetition": (
        "Leave cut completions out of the loss, and pull to the reference.",
        "arXiv:2506.13585",
    ),
    "broken_format": (
        "Require the format instead of adding its reward: no format, no reward.",
        "arXiv:2606.26027",
    ),
    "language_mix": ("Reward the prompt's script.", "arXiv:2506.10910"),
    "length_blowup": (
        "Leave cut completions out of the loss, or penalise length softly before the cap.",
        "arXiv:2503.14476",
    ),
    "length_collapse": ("Take out reward terms for brevity, or require the format.", "arXiv:2503.20783"),
    "reward_hacking": (
        "Give the term that wrong answers earn only to right ones, or a quarter of its weight.",
        "arXiv:2606.04923",
    ),
    "overfitting": ("More problems, or stop at the best evaluation.", "arXiv:2509.04259"),
    "vanishing_signal": (
        "Sample others in place of silent groups; larger groups; problems neither solved nor hopeless.",
        "arXiv:2503.14476",
    ),
    "critic": (
        "Train the critic longer before the policy, with a learning rate of its own.",
        "arXiv:2504.05118",
    ),
    "dead_run": ("Check the learning rate, the schedule and which weights train.", "TRL issue 2703"),
}
"""Words and source by cause."""
