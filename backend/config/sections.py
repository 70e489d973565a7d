"""The sections of a run's config: everything that decides what a run does."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from backend.config.adapters import Adapter, NoAdapter
from backend.config.base import MAX_OF_A_NAME, MAX_STEPS, Frozen, refusal
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

NAME = r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$"

TemplateVariable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
TEMPLATE_OWN = {
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents",
    "max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict",
    "return_tensors", "sanitize_control_tokens", "tokenize", "tokenizer_kwargs", "tools", "truncation",
}  # fmt: skip
"""Arguments of `apply_chat_template` and variables of templates that are no knobs."""


class PolicyConfig(Frozen):
    """The language model that is trained."""

    name: Annotated[str, Field(pattern=NAME, max_length=MAX_OF_A_NAME)] = "tiny"
    """`tiny` or `tiny_moe` (built in), a directory of MODELS_DIR, or a name on the hub (needs HF_ONLINE)."""

    revision: Annotated[str, Field(pattern=r"^[\w.-]*$", max_length=96)] = ""
    """Commit of a model of the hub: 40 hexadecimal digits."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of weights and arithmetic; log-probabilities and the loss are always float32."""

    chat_template: bool = False
    """Write prompts by the tokenizer's chat template; plain text becomes a user message."""

    system_prompt: Annotated[str, Field(max_length=10_000)] = ""
    """System message before each prompt that is plain text; prompts made of messages bring their own."""

    chat_template_kwargs: dict[TemplateVariable, JsonValue] = Field(default_factory=dict, max_length=16)
    """Variables of the chat template, e.g. {"enable_thinking": false}."""

    @model_validator(mode="after")
    def _template_is_used(self) -> "PolicyConfig":
        unused = [] if self.chat_template else ["system_prompt", "chat_template_kwargs"]
        reason = "needs policy.chat_template = true: plain text has no such part"
        errors = [(name, reason) for name in unused if getattr(self, name)]
        errors += [
            ("chat_template_kwargs", f"{name!r} is set by the trainer itself")
            for name in self.chat_template_kwargs
            if name in TEMPLATE_OWN
        ]
        if errors:
            raise refusal(errors)
        return self

    adapter: Adapter = NoAdapter()
    """none: every weight trains; lora: a low-rank adapter trains over the frozen policy; continued: one that
    was trained before goes on."""

    quantization: Literal["none", "int8", "nf4", "nf4_double"] = "none"
    """Storage of the frozen linear weights under an adapter (QLoRA): 8 bits each, 4.5, or with double
    quantisation 4.13."""


class SamplingConfig(Frozen):
    """The sampling of completions at each step."""

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

    engine: Engine = LocalEngine()
    """What samples: local, the trainer itself; server, one that the operator runs; or colocated, one that the
    trainer starts on its own device."""

    ahead: Annotated[int, Field(ge=0, le=64)] = 0
    """Asynchronous training: rollouts are sampled while the policy learns, by weights that are at most this
    many steps old. 0: each step samples and then learns. Above 0, objective.correction is token_tis unless
    you choose one, or none, and a run is not repeated bit for bit."""

    precision: Literal["policy", "bfloat16", "int8"] = "policy"
    """Arithmetic of the sampler: the policy's own, bfloat16, or int8 (weights per output channel, inputs
    per token; not the embedding and the output layer)."""

    staleness: Annotated[int, Field(ge=0, le=64)] = 0
    """Simulated age of the weights that sample, in steps: every step samples with weights exactly that old,
    in turns with learning; each version kept takes the memory of one copy of the weights."""

    keep_mask: bool = False
    """Take the learner's probabilities over the ids that top_p or top_k left at each token (DeepSeek-V3.2,
    arXiv:2512.02556)."""

    routing_replay: bool = False
    """Send each token to the experts that read it in the sampler (DeepSeek-V3.2); no effect on a dense
    policy."""

    order: Literal["shuffled", "sequential"] = "shuffled"
    """Prompt order; sequential gives step s the same prompts in every run."""

    @property
    def is_off_policy(self) -> bool:
        """Whether what samples is not the learner as it is: another engine, or older weights."""
        return self.engine.type != "local" or self.ahead > 0


class TrustRegion(Frozen):
    """The limits of a natural-gradient step; read only with updates.rule = natural_gradient."""

    delta: Annotated[float, Field(gt=0, le=1e3)] = 0.01
    """Largest mean KL between the policy before and after a step; nats per token. TRPO 0.01."""

    damping: Annotated[float, Field(ge=0, le=1e3)] = 0.1
    """Added to the diagonal of the Fisher matrix; larger is nearer to the plain gradient's direction."""

    cg_iters: Annotated[int, Field(ge=1, le=1000)] = 10
    """Conjugate-gradient iterations; each is a double backward pass over the step's tokens."""

    backtracks: Annotated[int, Field(ge=1, le=100)] = 10
    """Step lengths that the line search tries before it gives up on the step."""

    backtrack_factor: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Each length as a share of the one before."""


class UpdatesConfig(Frozen):
    """The optimizer steps that one step's rollouts become."""

    rule: Literal["adam", "natural_gradient"] = "adam"
    """adam: AdamW on minibatches; natural_gradient: one step along the natural gradient, as long as the trust
    region allows (TRPO, arXiv:1502.05477). The learning rate is then the critic's alone."""

    trust: TrustRegion = TrustRegion()
    """The trust region of natural_gradient."""

    epochs: Annotated[int, Field(ge=1, le=64)] = 1
    """Passes over one step's rollouts; above 1 the ratio leaves 1 and clipping acts."""

    minibatches: Annotated[int, Field(ge=1, le=1024)] = 1
    """Optimizer steps per epoch: the step's groups are split into this many parts."""

    resample_each_epoch: bool = False
    """Each epoch samples fresh rollouts from the policy as of the start of the step (the book)."""


class OptimizerConfig(Frozen):
    """AdamW and its schedule."""

    lr: Annotated[float, Field(gt=0, le=1)] = 3e-4
    """Learning rate."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of the first and second moment."""

    moments: Literal["float32", "int8", "int4"] = "float32"
    """Storage of both moments: 8 bytes per trained weight, 2, or 1."""

    paged: bool = False
    """Keep the moments in memory that a GPU and its host share, in pages that leave the GPU when it is full
    (QLoRA, arXiv:2305.14314). Needs a GPU, bitsandbytes on the worker, and moments float32 or int8."""

    eps: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """Added to the root of the second moment."""

    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Decoupled weight decay."""

    decayed: Literal["matrices", "all"] = "matrices"
    """Weights that decay. matrices: those with two or more dimensions, as in most trainers; all: gains and
    biases too (the default of torch's AdamW)."""

    max_grad_norm: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Gradients are scaled down to this L2 norm; a very large one leaves them as they are."""

    warmup_steps: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 0
    """Steps over which the learning rate rises from 0."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up; linear and cosine end at 0."""


class CheckpointingConfig(Frozen):
    """Directories from which a run continues and which `from_pretrained` opens."""

    every: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 25
    """Steps between checkpoints; 0: only at the end and when the run is paused."""

    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Newest checkpoints that are kept, in addition to the best one and some older ones."""

    spaced: Annotated[int, Field(ge=0, le=64)] = 4
    """Older checkpoints that are kept, the first among them, evenly spaced on a log scale of age, so that
    after a collapse there is one from before it."""

    best_by: SuiteName | Literal[""] = ""
    """Suite whose accuracy decides which checkpoint is the best one; empty: accuracy on the held-out set."""


class RecordingConfig(Frozen):
    """The selection of rollouts that are stored."""

    rollouts: Literal["auto", "all", "selected", "none"] = "auto"
    """auto: all of a small run, a selection of a big one (first, last, alarmed steps, extremes)."""

    tokens: bool = True
    """Store per-token strings, log-probabilities and entropies of the stored rollouts."""

    alternatives: Annotated[int, Field(ge=0, le=8)] = 0
    """Number of the likeliest tokens that are also stored at each token, with their log-probabilities."""


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


class StopOnDiagnosis(Frozen):
    """Pause or stop when the diagnosis of the steps so far says that the run breaks."""

    type: Literal["diagnosis"] = "diagnosis"

    severity: Literal["warning", "declining", "collapsed"] = "collapsed"
    """Mildest finding that ends the run. collapsed: the goal fell and stayed low. declining: also a clearly
    falling goal. warning: also another metric outside its healthy values, earlier and less reliable."""

    causes: Annotated[tuple[Cause, ...], Field(max_length=32)] = ()
    """Causes that count, as the table of causes names them; empty: every cause."""

    action: Literal["pause", "stop"] = "pause"
    """pause: save a checkpoint and wait until somebody resumes the run; stop: end the run."""


StopRule = Annotated[
    StopAtAccuracy | StopAfterTime | StopOnNonFinite | StopOnDiagnosis, Field(discriminator="type")
]


class RunSections(Frozen):
    """The sections of a run's config, before their combinations are checked."""

    preset: Annotated[str, Field(pattern=r"^[a-z0-9_]{0,64}$")] = ""
    """The preset this config began with; empty: none."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of sampling, prompt order and everything else that is random."""

    steps: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 150
    """Training steps; 0: only evaluate."""

    policy: PolicyConfig = PolicyConfig()
    """The language model that is trained."""

    problems: Annotated[tuple[ProblemSource, ...], Field(min_length=1, max_length=32)] = (SumsProblem(),)
    """Problem sources, mixed by weight."""

    data: DataConfig = DataConfig()
    """The rows of datasets that train, and their order."""

    sampling: SamplingConfig = SamplingConfig()
    """The completions of a step and how they are sampled."""

    environment: Environment = NoEnvironment()
    """Environment that answers the policy during a completion: nothing, tools, or an OpenEnv server."""

    objective: Objective = Objective()
    """The loss and everything that shapes it."""

    filters: FiltersConfig = FiltersConfig()
    """The groups that train."""

    length: LengthConfig = LengthConfig()
    """How length enters reward and loss."""

    rewards: Annotated[tuple[RewardTerm, ...], Field(min_length=1, max_length=32)] = (CorrectnessReward(),)
    """Reward terms; their weighted sum is the reward."""

    updates: UpdatesConfig = UpdatesConfig()
    """The optimizer steps on a step's rollouts."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW and its learning-rate schedule."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out evaluation."""

    checkpointing: CheckpointingConfig = CheckpointingConfig()
    """When checkpoints are saved, and how many are kept."""

    recording: RecordingConfig = RecordingConfig()
    """Which rollouts are stored."""

    stop_rules: Annotated[tuple[StopRule, ...], Field(max_length=16)] = (StopOnNonFinite(),)
    """Rules that end a run before its last step. Whatever the rules, a run stops after 20 steps in a row in
    which no group could be trained on."""

    resources: ResourcesConfig = ResourcesConfig()
    """Use of memory."""

    @property
    def sources(self) -> list[tuple[str, ProblemSource]]:
        """Every problem source that trains or evaluates, with its dotted path."""
        training = [(f"problems.{number}", source) for number, source in enumerate(self.problems)]
        suites = enumerate(self.evaluation.suites)
        return training + [(f"evaluation.suites.{number}.problem", suite.problem) for number, suite in suites]
