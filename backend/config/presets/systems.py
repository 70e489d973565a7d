"""Whole training recipes of laboratories: loss, data and length handling together."""

from backend.config import knobs
from backend.config.objective import Objective
from backend.config.presets.preset import DYNAMIC_SAMPLING, NO_SCALE, SOFT_OVERLONG, Preset, preset
from backend.config.rewards import CorrectnessReward
from backend.config.run import DynamicRefill, FiltersConfig, ZeroVarianceFilter

SYSTEMS: dict[str, Preset] = {
    "dapo": preset(
        "DAPO",
        "arXiv:2503.14476",
        """A wider upper clip so that rare tokens can grow, one mean over all tokens, dynamic
        sampling of prompts that are neither solved nor hopeless, rewards of -1 and 1 and a soft
        penalty before the length cap; no KL. Watch policy/entropy (it should stay up),
        sampling/generated_batches and length/truncated_frac. Paper: 16 completions of 512 prompts,
        lr 1e-6, cap 20480 tokens with a ramp of 4096.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.28),
            aggregation=knobs.TokenMean(),
        ),
        filters=DYNAMIC_SAMPLING,
        length=SOFT_OVERLONG,
        rewards=(CorrectnessReward(weight=1.0, map="-1/1"),),
    ),
    "olmo3": preset(
        "Olmo 3",
        "arXiv:2512.13961",
        """Dr. GRPO's advantage, a wider upper clip, one mean over all tokens, and a truncated
        weight against the mismatch between sampler and trainer; groups without signal are replaced.
        Watch mismatch/masked_frac, mismatch/rho_max and groups/zero_variance_frac. Paper: 64
        prompts of 8 completions, 32768 tokens, lr 1e-6 (7B) or 2e-6 (32B); it refills
        asynchronously, here before the update.""",
        objective=Objective(
            advantage=NO_SCALE,
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.272),
            correction=knobs.TokenTis(cap=2.0),
            aggregation=knobs.TokenMean(),
        ),
        filters=FiltersConfig(groups=ZeroVarianceFilter(), refill=DynamicRefill(max_batches=10)),
    ),
}
