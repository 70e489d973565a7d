"""Meanings of symbols that do not depend on the config. `legend` adds those that do."""

from backend.config.formula import critic, ratio, reward, shaped_reward, surrogate, tokens, updates, weights

COMMON = {
    "L": "loss of one optimizer step, to be minimised",
    "B_step": "completions that the step trained on",
    "∑ᵢ": "sum over the completions of the optimizer step",
    "∑ₜ": "sum over the tokens of completion i",
    "∑_p": "sum over the prompts of the optimizer step",
    "∑_i∈p": "sum over the completions of prompt p",
    "∑_i correct": "sum over the completions whose answer is right",
    "∑ⱼ": "sum over the reward terms",
    "∑ₖ": "sum over token t and those after it, k tokens on",
    "∏ₜ": "product over the tokens of completion i",
    "oᵢ": "completion i",
    "oᵢₜ": "token t of completion i, given its prompt and the tokens before it",
    "|oᵢ|": "length of completion i in tokens",
    "π": "probability of a token under the policy that is trained",
    "π_ref": "probability of a token under the reference policy, a constant",
    "clip": "clip(a, b, c): a limited to the range from b to c; no gradient beyond them",
    "sg": "sg[a]: a as a constant, without a gradient",
    "mean": "arithmetic mean",
    "std": "sample standard deviation: of n values, with divisor n − 1",
    "std_population": "standard deviation of n values with divisor n",
    "Aᵢ": "advantage of completion i, a constant",
    "Aᵢₜ": "advantage of token t of completion i, a constant",
    "Hᵢₜ": "entropy of the policy's distribution at a token; nats",
    "H_sampler": "entropy of the distribution that a token was drawn from; nats",
}
"""Meanings of the symbols that several modules use."""

MEANINGS: dict[str, str] = (
    COMMON
    | critic.MEANINGS
    | ratio.MEANINGS
    | reward.MEANINGS
    | shaped_reward.MEANINGS
    | surrogate.MEANINGS
    | tokens.MEANINGS
    | updates.MEANINGS
    | weights.MEANINGS
)
"""Meanings of all symbols, by symbol."""
