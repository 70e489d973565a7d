"""Find the metric of a column by the words of its name, such as `rollout_avg_response_token_length`.

A name matches a quantity if it has all words that the quantity needs, and no word with another meaning:
`reward_mean_all` is the reward, `reward_max` and `format_reward` are not.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from backend.exchange.imports.languages import in_english

Words = frozenset[str]


def _words(text: str) -> Words:
    return frozenset(text.split())


_ANY = _words(
    "mean avg average all total overall train training rollout rollouts batch step env sample samples policy "
    "actor"
)
"""Words that may stand in the name of every quantity."""
_RATE = _words("rate frac fraction share ratio percent pct")
_RIGHT = (
    _words("accuracy accuracies acc correct correctness pass@1 pass1"),
    _words("answer answers exact match greedy"),
)
HELD_OUT_WORDS = _words("eval evals evaluation val valid validation test dev heldout held out holdout")
"""Words of names and labels that mark an evaluation on held-out problems."""


_LENGTH = _words("length lengths len")
_COMPLETION = _words(
    "response responses resp completion completions output outputs generation generated gen answer token "
    "tokens seq sequence"
)


class Quantity(NamedTuple):
    """A metric and the words of its names."""

    metric: str
    needed: tuple[Words, ...]
    """Groups of words, of which a name has at least one each."""
    allowed: Words = Words()
    """Words that may also stand in a name."""

    def has_name(self, words: Words) -> bool:
        """Return whether a name of these words is one of this quantity."""
        return all(words & group for group in self.needed) and words <= self.allowed.union(_ANY, *self.needed)


_QUANTITIES = (
    Quantity("eval/accuracy", (HELD_OUT_WORDS, _RIGHT[0]), _RIGHT[1] | _RATE),
    Quantity("eval/accuracy", (HELD_OUT_WORDS, _words("success solve pass"), _words("rate"))),
    Quantity("reward/accuracy", (_RIGHT[0],), _RIGHT[1] | _RATE | _words("verifiable objective")),
    Quantity("reward/accuracy", (_words("success solve pass"), _words("rate"))),
    Quantity("reward/mean", (_words("reward rewards rew score scores"),)),
    Quantity("reward/mean", (_words("mean avg average"), _words("r"))),
    Quantity("reward/std", (_words("reward rewards"), _words("std"))),
    Quantity("eval/length_mean", (HELD_OUT_WORDS, _LENGTH), _COMPLETION),
    Quantity("length/mean", (_LENGTH,), _COMPLETION),
    Quantity("length/mean", (_words("mean avg average"), _words("generated completion"), _words("tokens"))),
    Quantity(
        "length/truncated_frac", (_words("truncated truncation"),), _RATE | _words("completions responses")
    ),
    Quantity("policy/entropy", (_words("entropy"),), _words("token tokens")),
    Quantity("kl/k3", (_words("kl kls"),), _words("div divergence ref reference to from vs base k3")),
    Quantity("optim/grad_norm", (_words("grad gradient gradients"), _words("norm")), _words("global l2")),
    Quantity("optim/lr", (_words("lr"),)),
    Quantity("optim/lr", (_words("learning"), _words("rate")), _words("optim optimizer metrics")),
    Quantity("loss/policy", (_words("policy actor act pg"), _words("loss losses"))),
    Quantity("loss/total", (_words("loss losses"),), _words("grpo rl ppo")),
)

_MISMATCH = Quantity(
    "mismatch/k3",
    (_words("kl"), _words("train training trainer learner"), _words("rollout inference infer sampler")),
    _words("div divergence vs"),
)

_BETWEEN_WORDS = re.compile(r"[^a-z0-9@]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


@lru_cache(4_096)
def metric_by_words(column: str) -> str | None:
    """Return the metric that the words of a column's name describe, or None."""
    if _MISMATCH.has_name(_split_words(column.rpartition("/")[2])):  # `train/` alone is a logger's prefix
        return _MISMATCH.metric
    words = _split_words(column)
    return next((quantity.metric for quantity in _QUANTITIES if quantity.has_name(words)), None)


def _split_words(name: str) -> Words:
    return Words(_BETWEEN_WORDS.split(_HUMP.sub("_", in_english(name)).lower())) - {""}
