"""Config of adapters, which are trained in addition to the frozen weights of a policy."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import MAX_NAME_CHARACTERS, Frozen

TARGETS_PATTERN = r"^[A-Za-z0-9_.]+(, ?[A-Za-z0-9_.]+)*$"
DIRECTORY_PATTERN = r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$"


class NoAdapter(Frozen):
    """All weights of the policy are trained."""

    type: Literal["none"] = "none"


class LoraAdapter(Frozen):
    """Low-rank adaptation: each adapted layer adds (alpha / rank) B A to its weight (LoRA, arXiv:2106.09685).

    The base is frozen. B starts at 0, so the run starts with the unchanged policy. Use about ten times the
    learning rate of full fine-tuning (Thinking Machines, "LoRA Without Regret", 2025).
    """

    type: Literal["lora"] = "lora"

    rank: Annotated[int, Field(ge=1, le=1024)] = 32
    """Rank of the adapter: the number of columns of B and of rows of A."""

    alpha: Annotated[float, Field(gt=0, le=4096)] = 32.0
    """Numerator of the adapter's scale, which is alpha / rank, or alpha / sqrt(rank) with rslora."""

    rslora: bool = False
    """Divide alpha by the square root of the rank, which keeps the step
    size at high ranks (arXiv:2312.03732).
    """

    targets: Annotated[str, Field(pattern=TARGETS_PATTERN, max_length=8192)] = "all_linear"
    """Adapted layers, separated by commas: all_linear, attention, experts, or names of linear layers, such as
    q_proj,v_proj or all_linear,experts. The value experts selects the routed experts of a mixture. The output
    layer, embeddings, output projections of Mamba layers, and the dense layers gate_proj, up_proj and
    down_proj of a mixture are never adapted.
    """

    init: Literal["kaiming", "gaussian"] = "kaiming"
    """Distribution from which A is initialised."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of A and B. float32 is also suitable for a bfloat16 base."""


class ContinuedAdapter(Frozen):
    """Continue to train a LoRA adapter from a directory, with its rank, scale and layers.

    The reference is the policy at the start of the run, including the adapter.
    """

    type: Literal["continued"] = "continued"

    name: Annotated[str, Field(pattern=DIRECTORY_PATTERN, max_length=MAX_NAME_CHARACTERS)]
    """Directory in MODELS_DIR that contains peft's adapter_config.json and adapter_model.safetensors."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision in which the adapter is trained."""


Adapter = Annotated[NoAdapter | LoraAdapter | ContinuedAdapter, Field(discriminator="type")]
