"""The sections of a run's config."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from backend.config.adapters import Adapter, NoAdapter
from backend.config.base import MAX_NAME_CHARACTERS, MAX_STEPS, Frozen, combination_error
from backend.config.causes import Cause
from backend.config.data import DataConfig
from backend.config.engines import Engine, LocalEngine
from backend.config.environments import Environment, NoEnvironment
from backend.config.evaluation import EvaluationConfig, SuiteName
from backend.config.filters import FiltersConfig
from backend.config.length import LengthConfig
from backend.config.objective import Objective
from backend.config.problems import ProblemSource, SumsProblem
from backend.config.resources import ResourcesConfig
from backend.config.rewards import CorrectnessReward, RewardTerm

POLICY_NAME_PATTERN = r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$"

TemplateVariable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
RESERVED_TEMPLATE_VARIABLES = {
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents",
    "max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict",
    "return_tensors", "sanitize_control_tokens", "tokenize", "tokenizer_kwargs", "tools", "truncation",
}  # fmt: skip
"""Arguments of `apply_chat_template` and template variables that the trainer sets itself."""


class PolicyConfig(Frozen):
    """The language model that is trained."""

    name: Annotated[str, Field(pattern=POLICY_NAME_PATTERN, max_length=MAX_NAME_CHARACTERS)] = "tiny"
    """`tiny` or `tiny_moe` (built in), a directory in MODELS_DIR, or a
    name on the hub (requires HF_ONLINE).
    """

    revision: Annotated[str, Field(pattern=r"^[\w.-]*$", max_length=96)] = ""
    """Commit of a model on the hub, 40 hexadecimal digits."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of weights and arithmetic. Log-probabilities and the loss are always float32."""

    chat_template: bool = False
    """Whether prompts are formatted with the tokenizer's chat template. Plain text becomes a user message."""

    system_prompt: Annotated[str, Field(max_length=10_000)] = ""
    """System message before each plain-text prompt. It is not added to prompts that consist of messages."""

    chat_template_kwargs: dict[TemplateVariable, JsonValue] = Field(default_factory=dict, max_length=16)
    """Variables of the chat template, e.g. {"enable_thinking": false}."""

    @model_validator(mode="after")
    def _template_is_used(self) -> "PolicyConfig":
        unused_fields = [] if self.chat_template else ["system_prompt", "chat_template_kwargs"]
        reason = "needs policy.chat_template = true: plain text has no such part"
        errors = [(name, reason) for name in unused_fields if getattr(self, name)]
        errors += [
            ("chat_template_kwargs", f"{name!r} is set by the trainer itself")
            for name in self.chat_template_kwargs
            if name in RESERVED_TEMPLATE_VARIABLES
        ]
        if errors:
            raise combination_error(errors)
        return self

    adapter: Adapter = NoAdapter()
    """none trains all weights, lora trains a new low-rank adapter on the frozen policy, and continued resumes
    the training of an existing adapter.
    """

    quantization: Literal["none", "int8", "nf4", "nf4_double"] = "none"
    """Quantisation of the frozen linear weights under an adapter (QLoRA): int8 takes 8 bits per weight, nf4
    4.5, and nf4_double, with double quantisation, 4.13.
    """


class SamplingConfig(Frozen):
    """The sampling of the completions of each step."""

    prompts_per_step: Annotated[int, Field(ge=1, le=4096)] = 16
    """Number of prompts per step (P)."""

    group_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Number of completions per prompt (G)."""

    max_new_tokens: Annotated[int, Field(ge=1, le=131072)] = 64
    """Maximum length of a completion, in tokens."""

    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Divisor of the logits before sampling."""

    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability mass of nucleus sampling. 1 turns it off. Below 1 the sampler
    draws from a renormalised distribution."""

    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of most likely tokens from which is sampled. 0 means all tokens."""

    engine: Engine = LocalEngine()
    """Engine that samples: local is the trainer itself, server is a server of the operator, and colocated is
    a server that the trainer starts on its device.
    """

    ahead: Annotated[int, Field(ge=0, le=64)] = 0
    """Maximum age of the weights that sample, in steps, for asynchronous training, in which rollouts are
    sampled while the policy learns. With 0, each step samples and then learns. Above 0, objective.correction
    defaults to token_tis, and a run is not reproducible bit for bit.
    """

    precision: Literal["policy", "bfloat16", "int8"] = "policy"
    """Precision of the sampler: that of the policy, bfloat16, or int8 (weights per output channel, inputs per
    token, except for the embedding and the output layer).
    """

    staleness: Annotated[int, Field(ge=0, le=64)] = 0
    """Simulated age of the weights that sample, in steps. Every step samples with weights of exactly this age
    and then learns. Each stored version takes the memory of one copy of the weights.
    """

    keep_mask: bool = False
    """Whether the learner normalises its probabilities over the ids that top_p or top_k kept at each token
    (DeepSeek-V3.2, arXiv:2512.02556)."""

    routing_replay: bool = False
    """Whether the learner routes each token to the experts that the sampler used
    (DeepSeek-V3.2). This has no effect on a dense policy.
    """

    order: Literal["shuffled", "sequential"] = "shuffled"
    """Order of the prompts. With sequential, step s has the same prompts in every run."""

    @property
    def is_off_policy(self) -> bool:
        """Whether another engine or older weights than those of the learner sample."""
        return self.engine.type != "local" or self.ahead > 0


class TrustRegion(Frozen):
    """The limits of a natural-gradient step, used only with updates.rule = natural_gradient."""

    delta: Annotated[float, Field(gt=0, le=1e3)] = 0.01
    """Maximum mean KL between the policy before and after a step, in nats per token. TRPO uses 0.01."""

    damping: Annotated[float, Field(ge=0, le=1e3)] = 0.1
    """Value added to the diagonal of the Fisher matrix. Larger values are closer to the plain gradient."""

    cg_iters: Annotated[int, Field(ge=1, le=1000)] = 10
    """Number of conjugate-gradient iterations. Each is a double backward pass over the tokens of the step."""

    backtracks: Annotated[int, Field(ge=1, le=100)] = 10
    """Maximum number of step lengths that the line search tries."""

    backtrack_factor: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Factor between successive step lengths."""


class UpdatesConfig(Frozen):
    """The optimizer steps on the rollouts of a step."""

    rule: Literal["adam", "natural_gradient"] = "adam"
    """adam uses AdamW on minibatches. natural_gradient takes one step along the natural gradient, limited by
    the trust region (TRPO, arXiv:1502.05477), and uses the learning rate only for the critic.
    """

    trust: TrustRegion = TrustRegion()
    """Trust region of natural_gradient."""

    epochs: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of passes over the rollouts of a step. Above 1, the ratio can
    differ from 1 and clipping has an effect."""

    minibatches: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of minibatches per epoch, into which the groups of a step are split."""

    resample_each_epoch: bool = False
    """Whether each epoch samples new rollouts from the policy at the start of the step (as in the book)."""


class OptimizerConfig(Frozen):
    """AdamW and its learning-rate schedule."""

    lr: Annotated[float, Field(gt=0, le=1)] = 3e-4
    """Learning rate."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay rates of the first and second moment."""

    moments: Literal["float32", "int8", "int4"] = "float32"
    """Precision of the moments. Both together take 8, 2 or 1 bytes per trained weight."""

    paged: bool = False
    """Keep the moments in memory that a GPU and its host share, in pages that are evicted from the GPU when
    it is full (QLoRA, arXiv:2305.14314). This requires a GPU, bitsandbytes on the worker, and moments float32
    or int8.
    """

    eps: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """Value added to the square root of the second moment."""

    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Rate of decoupled weight decay."""

    decayed: Literal["matrices", "all"] = "matrices"
    """Weights that decay. matrices means those with two or more dimensions, as in most trainers. all includes
    gains and biases, like torch's AdamW.
    """

    max_grad_norm: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Maximum L2 norm of the gradient. Larger gradients are scaled down."""

    warmup_steps: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 0
    """Number of steps over which the learning rate rises from 0."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Schedule of the learning rate after the warm-up. linear and cosine end at 0."""


class CheckpointingConfig(Frozen):
    """The checkpoints, from which a run can resume and which `from_pretrained` can load."""

    every: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 25
    """Number of steps between checkpoints. 0 means only at the end and when the run is paused."""

    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of newest checkpoints that are kept, in addition to the best one and some older ones."""

    spaced: Annotated[int, Field(ge=0, le=64)] = 4
    """Number of older checkpoints that are kept, including the first. They are evenly spaced on a log scale
    of age, so that after a collapse there is one from before it.
    """

    best_by: SuiteName | Literal[""] = ""
    """Suite whose accuracy determines the best checkpoint. If empty, the
    accuracy on the held-out set is used.
    """


class RecordingConfig(Frozen):
    """The rollouts and token values that are stored."""

    rollouts: Literal["auto", "all", "selected", "none"] = "auto"
    """Rollouts that are stored. auto stores all rollouts of a small run, and a selection of a large run
    (first and last steps, steps with alarms, extremes).
    """

    tokens: bool = True
    """Whether the strings, log-probabilities and entropies of the tokens of stored rollouts are stored."""

    alternatives: Annotated[int, Field(ge=0, le=8)] = 0
    """Number of most likely alternatives that are stored for each token, with their log-probabilities."""


class StopAtAccuracy(Frozen):
    """Finish when the held-out accuracy reaches a value."""

    type: Literal["accuracy"] = "accuracy"

    value: Annotated[float, Field(gt=0, le=1)]
    """Held-out accuracy, from 0 to 1."""


class StopAfterTime(Frozen):
    """Stop after a certain training time."""

    type: Literal["wall_time"] = "wall_time"

    seconds: Annotated[float, Field(gt=0, le=1e9)]
    """Total training time of all attempts, in seconds."""


class StopOnNonFinite(Frozen):
    """Fail after a number of consecutive non-finite updates. Such updates are always skipped."""

    type: Literal["non_finite"] = "non_finite"

    patience: Annotated[int, Field(ge=1, le=1000)] = 5
    """Number of consecutive skipped updates."""


class StopOnDiagnosis(Frozen):
    """Pause or stop when the diagnosis of the steps so far finds that the run is failing."""

    type: Literal["diagnosis"] = "diagnosis"

    severity: Literal["warning", "declining", "collapsed"] = "collapsed"
    """Mildest finding that ends the run. With collapsed, the goal must have fallen and stayed low. declining
    also includes a clearly falling goal. warning also includes other metrics outside of their healthy values,
    which is earlier and less reliable.
    """

    causes: Annotated[tuple[Cause, ...], Field(max_length=32)] = ()
    """Causes that end the run. If empty, all causes do."""

    action: Literal["pause", "stop"] = "pause"
    """pause saves a checkpoint and waits until somebody resumes the run. stop ends the run."""


StopRule = Annotated[
    StopAtAccuracy | StopAfterTime | StopOnNonFinite | StopOnDiagnosis, Field(discriminator="type")
]


class RunSections(Frozen):
    """The sections of a run's config. RunConfig also checks their combinations."""

    preset: Annotated[str, Field(pattern=r"^[a-z0-9_]{0,64}$")] = ""
    """Preset on which this config is based, or empty for none."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of sampling, prompt order and all other random choices."""

    steps: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 150
    """Number of training steps. 0 means that the run only evaluates."""

    policy: PolicyConfig = PolicyConfig()
    """Language model that is trained."""

    problems: Annotated[tuple[ProblemSource, ...], Field(min_length=1, max_length=32)] = (SumsProblem(),)
    """Problem sources, which are mixed by weight."""

    data: DataConfig = DataConfig()
    """Selection and order of the rows of datasets."""

    sampling: SamplingConfig = SamplingConfig()
    """Number of completions per step, and their sampling."""

    environment: Environment = NoEnvironment()
    """Environment that responds to the policy during a completion: none, tools, or an OpenEnv server."""

    objective: Objective = Objective()
    """Loss and all knobs that it consists of."""

    filters: FiltersConfig = FiltersConfig()
    """Selection of the groups that are trained on."""

    length: LengthConfig = LengthConfig()
    """Effect of the completion length on reward and loss."""

    rewards: Annotated[tuple[RewardTerm, ...], Field(min_length=1, max_length=32)] = (CorrectnessReward(),)
    """Reward terms, whose weighted sum is the reward."""

    updates: UpdatesConfig = UpdatesConfig()
    """Optimizer steps on the rollouts of a step."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW and its learning-rate schedule."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out evaluation."""

    checkpointing: CheckpointingConfig = CheckpointingConfig()
    """Schedule and number of checkpoints."""

    recording: RecordingConfig = RecordingConfig()
    """Selection of the rollouts that are stored."""

    stop_rules: Annotated[tuple[StopRule, ...], Field(max_length=16)] = (StopOnNonFinite(),)
    """Rules that end a run before its last step. In addition, every run stops after 20 consecutive steps in
    which no group could be trained on.
    """

    resources: ResourcesConfig = ResourcesConfig()
    """Use of devices and memory."""

    @property
    def sources(self) -> list[tuple[str, ProblemSource]]:
        """All problem sources for training and evaluation, with their dotted paths."""
        training = [(f"problems.{number}", source) for number, source in enumerate(self.problems)]
        suites = enumerate(self.evaluation.suites)
        return training + [(f"evaluation.suites.{number}.problem", suite.problem) for number, suite in suites]
