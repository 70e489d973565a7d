"""RunConfig: everything that decides what a run does."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from backend.config.base import Frozen, refusal
from backend.config.objective import Objective
from backend.config.problems import ProblemSource, SumsProblem
from backend.config.rewards import CorrectnessReward, RewardTerm

NAME = r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$"

MOST_STEPS = 10_000_000


class PolicyConfig(Frozen):
    """The language model that is trained."""

    name: Annotated[str, Field(pattern=NAME)] = "tiny"
    """`tiny` or `tiny_moe` (built in), a directory of MODELS_DIR, or a name on the hub (needs HF_ONLINE)."""

    revision: Annotated[str, Field(pattern=r"^[\w.-]{0,96}$")] = ""
    """Commit hash or tag on the hub; empty: the default branch."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of weights and arithmetic; log-probabilities and the loss are always float32."""

    chat_template: bool = False
    """Wrap each prompt as a user turn of the tokenizer's chat template."""


class SamplingConfig(Frozen):
    """How completions are generated at each step."""

    prompts_per_step: Annotated[int, Field(ge=1, le=4096)] = 16
    """P: prompts per step."""

    group_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """G: completions per prompt."""

    max_new_tokens: Annotated[int, Field(ge=1, le=131072)] = 64
    """Length cap of a completion, in tokens."""

    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Divides the logits before sampling."""

    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus mass; 1: off. Below 1 the sampler draws from a renormalised distribution."""

    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Keep only the k most likely tokens; 0: off."""

    precision: Literal["policy", "bfloat16", "int8"] = "policy"
    """Arithmetic of the sampler: the policy's own, bfloat16, or int8 (weights per output channel, inputs
    per token; not the embedding and the output layer)."""

    staleness: Annotated[int, Field(ge=0, le=64)] = 0
    """How many steps old the weights are that sample, as an asynchronous sampler's; each version kept takes
    the memory of one copy of the weights."""

    keep_mask: bool = False
    """Take the learner's probabilities over the ids that top_p or top_k left at each token (DeepSeek-V3.2,
    arXiv:2512.02556)."""

    routing_replay: bool = False
    """Send each token to the experts that read it in the sampler (DeepSeek-V3.2); nothing on a dense
    policy."""

    order: Literal["shuffled", "sequential"] = "shuffled"
    """Prompt order; sequential gives step s the same prompts in every run."""


class TrustRegion(Frozen):
    """How far and how carefully a step goes; read only with updates.rule = natural_gradient."""

    delta: Annotated[float, Field(gt=0, le=1e3)] = 0.01
    """Largest mean KL between the policy before and after a step; nats per token. TRPO 0.01."""

    damping: Annotated[float, Field(ge=0, le=1e3)] = 0.1
    """Added to the diagonal of the Fisher matrix; larger is nearer to the plain gradient's direction."""

    cg_iters: Annotated[int, Field(ge=1, le=1000)] = 10
    """Conjugate-gradient iterations; each is a double backward pass over the step's tokens."""

    backtracks: Annotated[int, Field(ge=1, le=100)] = 10
    """How many lengths the line search tries before it gives the step up."""

    backtrack_factor: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Each length as a share of the one before."""


class UpdatesConfig(Frozen):
    """How one step's rollouts become optimizer steps."""

    rule: Literal["adam", "natural_gradient"] = "adam"
    """adam: AdamW on minibatches; natural_gradient: one step along the natural gradient, as long as the trust
    region allows (TRPO, arXiv:1502.05477). The learning rate is then the critic's alone."""

    trust: TrustRegion = TrustRegion()
    """The region of natural_gradient."""

    epochs: Annotated[int, Field(ge=1, le=64)] = 1
    """Passes over one step's rollouts; above 1 the ratio leaves 1 and clipping acts."""

    minibatches: Annotated[int, Field(ge=1, le=1024)] = 1
    """Optimizer steps per epoch: the step's groups are split into this many parts."""

    resample_each_epoch: bool = False
    """Each epoch samples fresh rollouts from the policy as it was at the start of the step (the book)."""


class OptimizerConfig(Frozen):
    """AdamW and its schedule."""

    lr: Annotated[float, Field(gt=0, le=1)] = 3e-4
    """Learning rate."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of the first and second moment."""

    eps: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """Added to the root of the second moment."""

    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Decoupled weight decay."""

    max_grad_norm: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Gradients are scaled down to this L2 norm; a very large one leaves them as they are."""

    warmup_steps: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Steps over which the learning rate rises from 0."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up; linear and cosine end at 0."""


class KeepAllGroups(Frozen):
    """Every group trains."""

    type: Literal["none"] = "none"


class ZeroVarianceFilter(Frozen):
    """Groups whose rewards are all equal are left out: they carry no signal."""

    type: Literal["zero_variance"] = "zero_variance"


class AccuracyFilter(Frozen):
    """Groups whose accuracy is not strictly between the bounds are left out (DAPO: 0 and 1)."""

    type: Literal["accuracy"] = "accuracy"

    low: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Groups at or below this accuracy are left out."""

    high: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Groups at or above this accuracy are left out."""

    @model_validator(mode="after")
    def _ordered(self) -> "AccuracyFilter":
        if self.low >= self.high:
            raise refusal([("high", f"must be above low = {self.low:g}, got {self.high:g}")])
        return self


GroupFilter = Annotated[KeepAllGroups | ZeroVarianceFilter | AccuracyFilter, Field(discriminator="type")]


class NoRefill(Frozen):
    """Removed groups are not replaced."""

    type: Literal["none"] = "none"

    @property
    def most_batches(self) -> int:
        """Generation batches of a step at most."""
        return 1


class _Batches(Frozen):
    max_batches: Annotated[int, Field(ge=1, le=1000)] = 10
    """Generation batches per step at most; after that the step trains on what there is, with an event."""

    @property
    def most_batches(self) -> int:
        """Generation batches of a step at most."""
        return self.max_batches


class DynamicRefill(_Batches):
    """Fresh prompts are sampled until the step is full of informative groups (DAPO's dynamic sampling)."""

    type: Literal["dynamic"] = "dynamic"


class ActiveRefill(_Batches):
    """As dynamic, but informative groups found too much wait for the next step, which trains on them first
    (active sampling, Olmo 3, arXiv:2512.13961). They are one step old then: the policy has moved since they
    were sampled, which is what `objective.correction` weighs.
    """

    type: Literal["active"] = "active"


class NeighboursRefill(Frozen):
    """Places without an informative group try the prompts that come next, while the run's place in the data
    moves on by one step all the same, so neighbouring steps share prompts (the book's olmo3 script).
    """

    type: Literal["neighbours"] = "neighbours"

    n: Annotated[int, Field(ge=1, le=1000)] = 8
    """Tries per step, the first one included; after that the step trains on what there is."""

    @property
    def most_batches(self) -> int:
        """Generation batches of a step at most."""
        return self.n


Refill = Annotated[NoRefill | DynamicRefill | ActiveRefill | NeighboursRefill, Field(discriminator="type")]


class FiltersConfig(Frozen):
    """Which groups train."""

    groups: GroupFilter = KeepAllGroups()
    """Which groups are left out."""

    refill: Refill = NoRefill()
    """What replaces them."""

    upweight: bool = False
    """Multiply means over completions or prompts by 1 / (1 - left-out fraction): they become means over the
    groups that are left. Without it the divisor counts groups that were left out and not replaced, so leaving
    out groups of advantage 0 changes no gradient. token_mean is over the tokens that are left either way.
    """


class KeepTruncated(Frozen):
    """Completions cut at the cap train like all others."""

    type: Literal["keep"] = "keep"


class MaskTruncated(Frozen):
    """Completions cut at the cap take no part in the loss (DAPO's overlong filtering)."""

    type: Literal["mask"] = "mask"


class ScaleTruncatedReward(Frozen):
    """The reward of completions cut at the cap is multiplied by a factor (arXiv:2510.15110); a reward below 0
    stays as it is, for nearer to 0 it would reward truncation.
    """

    type: Literal["scale_reward"] = "scale_reward"

    factor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The factor."""


Truncated = Annotated[KeepTruncated | MaskTruncated | ScaleTruncatedReward, Field(discriminator="type")]


class NoLengthPenalty(Frozen):
    """Length does not change the reward."""

    type: Literal["none"] = "none"


class _Overlong(Frozen):
    max_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """L_max as a fraction of max_new_tokens."""

    cache_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """L_cache, the width of the ramp, as a fraction of max_new_tokens."""

    @model_validator(mode="after")
    def _ramp_inside(self) -> Self:
        if self.cache_fraction > self.max_fraction:
            raise refusal([("cache_fraction", f"must be at most max_fraction = {self.max_fraction:g}")])
        return self


class SoftOverlong(_Overlong):
    """A penalty that falls linearly from 0 to -1 over the last part of the allowed length (DAPO)."""

    type: Literal["soft_overlong"] = "soft_overlong"


class MagistralPenalty(_Overlong):
    """A tenth of that: from 0 to -0.1 over the last part of the length (Magistral, arXiv:2506.10910)."""

    type: Literal["magistral"] = "magistral"


LengthPenalty = Annotated[NoLengthPenalty | SoftOverlong | MagistralPenalty, Field(discriminator="type")]


class LengthConfig(Frozen):
    """How length enters reward and loss."""

    truncated: Truncated = KeepTruncated()
    """What happens to completions cut at the cap."""

    penalty: LengthPenalty = NoLengthPenalty()
    """A penalty added to the reward."""


class EvaluationConfig(Frozen):
    """Held-out evaluation, at step 0, every `every` steps and at the end."""

    every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 10
    """Steps between evaluations; 0: never."""

    prompts: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Held-out prompts, the same ones at every evaluation; training never sees them."""

    k: Annotated[int, Field(ge=1, le=256)] = 1
    """Completions per prompt: 1 decodes greedily, more are sampled and give pass@k and avg@k."""


class CheckpointingConfig(Frozen):
    """Directories from which a run continues and which `from_pretrained` opens."""

    every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 25
    """Steps between checkpoints; 0: only at the end and when the run is paused."""

    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many of the newest checkpoints are kept, beside the best one."""


class RecordingConfig(Frozen):
    """Which rollouts are stored."""

    rollouts: Literal["auto", "all", "selected", "none"] = "auto"
    """auto: all of a small run, a selection of a big one (first, last, alarmed steps, extremes)."""

    tokens: bool = True
    """Store per-token strings, log-probabilities and entropies of the kept rollouts."""


class StopAtAccuracy(Frozen):
    """Finish when held-out accuracy reaches a value."""

    type: Literal["accuracy"] = "accuracy"

    value: Annotated[float, Field(gt=0, le=1)]
    """Held-out accuracy, 0..1."""


class StopAfterTime(Frozen):
    """Stop after some time of training."""

    type: Literal["wall_time"] = "wall_time"

    seconds: Annotated[float, Field(gt=0, le=1e9)]
    """Training time summed over attempts, in seconds."""


class StopOnNonFinite(Frozen):
    """Fail after some non-finite updates in a row; such updates are always skipped."""

    type: Literal["non_finite"] = "non_finite"

    patience: Annotated[int, Field(ge=1, le=1000)] = 5
    """Skipped updates in a row."""


StopRule = Annotated[StopAtAccuracy | StopAfterTime | StopOnNonFinite, Field(discriminator="type")]


class ResourcesConfig(Frozen):
    """What a run needs of the machine."""

    microbatch_completions: Annotated[int, Field(ge=0, le=65536)] = 0
    """Completions per forward and backward pass; 0: the whole minibatch. Never changes the gradient."""


class RunConfig(Frozen):
    """One training run."""

    preset: Annotated[str, Field(pattern=r"^[a-z0-9_]{0,64}$")] = ""
    """The preset this config began with; empty: none."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of sampling, prompt order and everything else that is random."""

    steps: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 150
    """Training steps; 0: only evaluate."""

    policy: PolicyConfig = PolicyConfig()
    """The model."""

    problems: Annotated[tuple[ProblemSource, ...], Field(min_length=1, max_length=32)] = (SumsProblem(),)
    """Problem sources, mixed by weight."""

    sampling: SamplingConfig = SamplingConfig()
    """Rollouts of a step."""

    objective: Objective = Objective()
    """The loss."""

    filters: FiltersConfig = FiltersConfig()
    """Which groups train."""

    length: LengthConfig = LengthConfig()
    """How length enters reward and loss."""

    rewards: Annotated[tuple[RewardTerm, ...], Field(min_length=1, max_length=32)] = (CorrectnessReward(),)
    """Reward terms; their weighted sum is the reward."""

    updates: UpdatesConfig = UpdatesConfig()
    """Rollouts to optimizer steps."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out evaluation."""

    checkpointing: CheckpointingConfig = CheckpointingConfig()
    """Checkpoints."""

    recording: RecordingConfig = RecordingConfig()
    """Stored rollouts."""

    stop_rules: Annotated[tuple[StopRule, ...], Field(max_length=16)] = (StopOnNonFinite(),)
    """When a run ends before its last step."""

    resources: ResourcesConfig = ResourcesConfig()
    """Memory."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "RunConfig":
        from backend.config.rules import combination_errors

        if errors := combination_errors(self):
            raise refusal(errors)
        return self
