"""Length shaping of rewards, applied before groups are filtered. Lengths are in tokens."""

from jaxtyping import Bool, Float, Int
from torch import Tensor


def soft_overlong(lengths: Int[Tensor, "P G"], *, l_max: int, l_cache: int) -> Float[Tensor, "P G"]:
    """Return a penalty to add to the reward, which grows over the last `l_cache` tokens before the cap.

        0 for L <= l_max - l_cache;  (l_max - l_cache - L) / l_cache in the ramp;  -1 for L > l_max

    Source: DAPO, arXiv:2503.14476, equation 13.
    """
    ramp: Tensor = (l_max - l_cache - lengths).double() / l_cache
    return ramp.clamp(min=-1.0, max=0.0)


def magistral_penalty(lengths: Int[Tensor, "P G"], *, l_max: int, l_cache: int) -> Float[Tensor, "P G"]:
    """Return a tenth of the soft overlong penalty, so that the ramp ends at -0.1.

    Source: Magistral, arXiv:2506.10910.
    """
    return 0.1 * soft_overlong(lengths, l_max=l_max, l_cache=l_cache)


def scaled_truncated_rewards(
    rewards: Float[Tensor, "P G"], is_truncated: Bool[Tensor, "P G"], *, factor: float
) -> Float[Tensor, "P G"]:
    """Multiply the rewards of truncated completions by `factor` in [0, 1].

        min(R, factor R)

    A reward below 0 stays unchanged, because a penalty closer to 0 would favour truncation.
    Source: "stop properly", arXiv:2510.15110.
    """
    return rewards.where(~is_truncated, rewards.minimum(rewards * factor))
