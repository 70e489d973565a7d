"""Tests of the definition of R in a formula, which must match the worker's computation."""

import numpy as np
import pytest

from backend.config.formula.loss import formula
from backend.config.merge import resolve
from worker.problems.sums import Sums
from worker.rewards.score import Scorer
from worker.rollout.collector import reward_terms, shape_rewards
from worker.types import Completion


def list_formula_lines(**written):
    return formula(resolve(written))["text"].splitlines()


def find_definitions(*names, **written):
    """Return the lines that define these symbols, in order."""
    prefixes = tuple(f"{name} " for name in names)
    return [line for line in list_formula_lines(**written) if line.startswith(prefixes)]


def test_weights_signs_and_maps_are_shown():
    rewards = [
        {"name": "correctness", "map": "-1/1"},
        {"name": "boxed_format", "weight": -0.5},
        {"name": "language", "weight": 0},
    ]
    assert find_definitions("Rᵢ", "correctness", rewards=rewards) == [
        "Rᵢ = correctness − 0.5 boxed_format",
        "correctness = 2 score − 1",
    ]


SHAPED_CONFIG = {
    "rewards": [
        {"name": "correctness", "map": "-1/1"},
        {"name": "boxed_format", "weight": 0.5},
        {"name": "think_format", "weight": 0.2, "required": True},
    ],
    "length": {
        "truncated": {"type": "scale_reward", "factor": 0.5},
        "penalty": {"type": "soft_overlong", "cache_fraction": 0.4},
    },
    "sampling": {"max_new_tokens": 10},
}

# (text, tokens, finish_reason), followed by score, boxed_format and think_format of the text
COMPLETIONS = [
    ("<think></think>\\boxed{RIGHT}", 3, "stop", 1, 1, 1),
    ("<think></think>\\boxed{RIGHT}", 8, "stop", 1, 1, 1),
    ("<think></think>\\boxed{RIGHT}", 10, "length", 1, 1, 1),
    ("<think></think>none", 10, "length", 0, 0, 1),
    ("\\boxed{RIGHT}", 10, "stop", 1, 1, 0),
]


def test_the_formula_of_r_matches_the_worker():
    """Compare R by hand, as the lines define it, with scorer and shaping."""
    assert find_definitions("Rᵢ", "fᵢ", "sumᵢ", "correctness", "length_penalty", **SHAPED_CONFIG) == [
        "Rᵢ = fᵢ sumᵢ + length_penalty",
        "fᵢ = 0.5 where oᵢ was truncated at 10 tokens and sumᵢ > 0, else 1",
        "sumᵢ = correctness + 0.5 boxed_format + 0.2 think_format",
        "Rᵢ = 0 where think_format ≤ 0",
        "correctness = 2 score − 1",
        "length_penalty = clip((6 − tokensᵢ) / 4, −1, 0)",
    ]
    rewards = []
    for _, tokens, reason, score, boxed_score, think_score in COMPLETIONS:
        correctness = 2 * score - 1
        penalty = min(max((6 - tokens) / 4, -1), 0)
        total = correctness + 0.5 * boxed_score + 0.2 * think_score
        factor = 0.5 if reason == "length" and total > 0 else 1
        rewards.append(0 if think_score <= 0 else factor * total + penalty)
    assert list(computed(SHAPED_CONFIG).rewards) == pytest.approx(rewards)
    assert rewards == pytest.approx([1.7, 1.2, -0.15, -1.8, 0])


def test_the_terms_of_gdpo_also_match():
    group = computed(SHAPED_CONFIG)
    group_terms = reward_terms([group])
    total = (group_terms.values * group_terms.weights.unsqueeze(2)).sum(dim=0)[0].tolist()
    terms = [
        0.5 * weight * term_value if reason == "length" and weight * term_value > 0 else weight * term_value
        for _, _, reason, score, boxed_score, think_score in COMPLETIONS
        for weight, term_value in ((1, 2 * score - 1), (0.5, boxed_score), (0.2, think_score))
    ]
    by_completion = [sum(terms[start : start + 3]) for start in range(0, len(terms), 3)]
    penalties = [min(max((6 - tokens) / 4, -1), 0) for _, tokens, *_ in COMPLETIONS]
    expected = [
        0 if think_score <= 0 else reward + penalty
        for (*_, think_score), reward, penalty in zip(COMPLETIONS, by_completion, penalties, strict=True)
    ]
    assert total == pytest.approx(expected)


def computed(reward_config):
    """Return the group as the worker scores and shapes it."""
    config = resolve(reward_config)
    prompt = Sums(seed=0).sample(0, "train")
    scorer = Scorer(config.rewards)
    try:
        completions = [
            completion(text.replace("RIGHT", prompt.answer), tokens, reason)
            for text, tokens, reason, *_ in COMPLETIONS
        ]
        groups = scorer.score([prompt], [completions])
    finally:
        scorer.close()
    return shape_rewards(groups, config.length, max_new_tokens=config.sampling.max_new_tokens)[0]


def completion(text, tokens, reason):
    numbers = np.zeros(tokens, dtype=np.float32)
    return Completion(np.arange(tokens), text, ("x",) * tokens, reason, numbers, numbers)
