"""Presets of methods with one ratio per completion."""

from backend.config import knobs
from backend.config.objective import Objective
from backend.config.presets.preset import Preset, preset
from backend.config.sections import UpdatesConfig

SEQUENCE: dict[str, Preset] = {
    "gspo": preset(
        "GSPO",
        "arXiv:2507.18071",
        """One ratio per completion, the geometric mean of its token ratios, clipped as a whole
        within a few ten-thousandths of 1. A clip fraction about a hundred times GRPO's is normal
        here. Watch ratio/max and the stability of the loss. Paper: four minibatches per batch.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricRatio(),
            surrogate=knobs.PpoClip(eps_low=3e-4, eps_high=4e-4),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "gspo_token": preset(
        "GSPO-token",
        "arXiv:2507.18071",
        """GSPO's ratio with a separate gradient for each token, so that advantages may differ between
        tokens. With one advantage per completion it trains exactly as GSPO. Watch the same metrics as for
        GSPO.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricTokenRatio(),
            surrogate=knobs.PpoClip(eps_low=3e-4, eps_high=4e-4),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "luspo": preset(
        "LUSPO",
        "arXiv:2602.05261",
        """GSPO with the loss of each completion multiplied by its length, so that the tokens of long
        completions no longer count less. Watch length/mean, which GSPO tends to shrink, and reward/mean.
        Clip and minibatches are GSPO's.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricRatio(),
            surrogate=knobs.PpoClip(eps_low=3e-4, eps_high=4e-4),
            aggregation=knobs.SeqMeanTokenSum(),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "gmpo": preset(
        "GMPO",
        "arXiv:2507.20673",
        """The geometric mean of token ratios that are first clipped in log space: single outliers lose their
        influence, and the sequence keeps its gradient. Watch ratio/max and ratio/min (narrower than
        GRPO's) and policy/entropy (higher). Paper: 8 completions per prompt, lr 1e-6, 3000 tokens.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricRatio(),
            surrogate=knobs.GeoToken(eps_low=0.4, eps_high=0.4),
        ),
    ),
    "vespo": preset(
        "VESPO",
        "arXiv:2602.10693",
        """Completions are weighted by how far their probability has moved since they were sampled. The
        weight fades smoothly on both sides, and sooner for good completions that have become likely. No
        length normalisation and no clip. Watch gate/mean (the weight, 1 on fresh rollouts), ratio/max and
        policy/entropy; made for stale rollouts, so try sampling.staleness above 0. The weights are TRL's,
        relative to the sampler's probabilities. Paper: stable at rollouts up to 64 updates old.""",
        objective=Objective(
            ratio=knobs.SequenceProductRatio(old="sampler"),
            surrogate=knobs.Vespo(k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "rspo": preset(
        "RSPO",
        "arXiv:2510.23027",
        """GMPO for mixtures of experts: if the router has moved away from the experts it chose for a token,
        the token's ratio is reduced, to 0.8 of it at the lowest. Choose the policy tiny_moe or another
        mixture of experts; on a dense policy it is GMPO. Four minibatches, because at the first update of
        a step the router has not changed yet. Watch router/shift_mean, router/floor_frac and
        optim/grad_norm. The paper does not give the floor; 0.8 and the clip of 0.4 come from other
        implementations and from GMPO.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricRatio(),
            surrogate=knobs.GeoToken(eps_low=0.4, eps_high=0.4),
            router=knobs.RouterShift(gamma_min=0.8),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
}
