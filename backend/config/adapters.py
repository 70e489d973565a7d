"""Adapters: weights that train beside a policy whose own weights are frozen."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import MAX_OF_A_NAME, Frozen

TARGETS = r"^[A-Za-z0-9_.]+(, ?[A-Za-z0-9_.]+)*$"
DIRECTORY = r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$"


class NoAdapter(Frozen):
    """Every weight of the policy trains."""

    type: Literal["none"] = "none"


class LoraAdapter(Frozen):
    """Low-rank adaptation: each adapted layer adds (alpha / rank) B A to its weight (LoRA, arXiv:2106.09685).

    The base is frozen. B starts at 0, so the run starts with the unchanged policy. Use about ten times the
    learning rate of full fine-tuning (Thinking Machines, "LoRA Without Regret", 2025).
    """

    type: Literal["lora"] = "lora"

    rank: Annotated[int, Field(ge=1, le=1024)] = 32
    """Columns of B and rows of A."""

    alpha: Annotated[float, Field(gt=0, le=4096)] = 32.0
    """Scale of the adapter: alpha / rank, or alpha / sqrt(rank) with rslora."""

    rslora: bool = False
    """Divide alpha by the root of the rank, which keeps the step size at high ranks (arXiv:2312.03732)."""

    targets: Annotated[str, Field(pattern=TARGETS, max_length=8192)] = "all_linear"
    """Adapted layers: all_linear, attention, experts, or names of linear layers, with commas between them,
    such as q_proj,v_proj or all_linear,experts. experts stands for the routed experts of a mixture. The
    output layer, embeddings and output projections of Mamba layers are not adapted, nor are a mixture's dense
    layers gate_proj, up_proj and down_proj."""

    init: Literal["kaiming", "gaussian"] = "kaiming"
    """Distribution of A at the start."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of A and B; float32 is right over a bfloat16 base too."""


class ContinuedAdapter(Frozen):
    """A LoRA adapter from a directory continues training with its own rank, scale and layers.

    The reference is the policy at the start of the run, including the adapter.
    """

    type: Literal["continued"] = "continued"

    name: Annotated[str, Field(pattern=DIRECTORY, max_length=MAX_OF_A_NAME)]
    """Directory of MODELS_DIR with adapter_config.json and adapter_model.safetensors, as peft writes them."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision in which the adapter trains."""


Adapter = Annotated[NoAdapter | LoraAdapter | ContinuedAdapter, Field(discriminator="type")]
