"""Add, remove and merge LoRA adapters with peft, and load them from a checkpoint.

peft inserts its layers into the model, so all uses of the model's modules sample from, score and train the
adapted policy. Source: LoRA, arXiv:2106.09685.
"""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.base.errors import FieldError, InvalidConfig
from backend.catalog.policies.adapters import ADAPTER_WEIGHTS, is_fused, reserved_layers
from backend.catalog.policies.text_model import is_outside_text_model
from backend.config.adapters import LoraAdapter

NAME = "default"
"""Name under which peft registers the only adapter."""


EXPERTS = "experts"
"""Target name that stands for the weights of all routed experts."""

LORA_EXPERTS = "peft.tuners.lora.layer.ParamWrapper"

LORA_LINEAR = ("peft.tuners.lora.layer.Linear", "peft.tuners.lora.torchao.TorchaoLoraLinear")


class BadAdapter(ValueError):
    """Raised for adapter weights that cannot be read or that belong to another model."""


def add_adapter(model: PreTrainedModel, adapter: LoraAdapter, *, base: str, revision: str = "") -> None:
    """Add a new adapter and freeze everything else, in place.

    `base` and `revision` are the name and revision that a checkpoint of the adapter records. Raises
    InvalidConfig if the model lacks the target layers.
    """
    from peft import LoraConfig

    target_names = adapter.targets.replace(" ", "").split(",")
    targets = target_modules(model, [target for target in target_names if target != EXPERTS])
    experts = expert_weights(model) if EXPERTS in target_names else []
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,  # type: ignore[arg-type] # peft only divides by it, so any number works
        use_rslora=adapter.rslora,
        target_modules=targets,
        target_parameters=experts,
        lora_dropout=0.0,
        init_lora_weights=True if adapter.init == "kaiming" else adapter.init,
        task_type="CAUSAL_LM",
    )
    with (
        warnings.catch_warnings()
    ):  # peft could not merge into quantized weights, but `merged_copy` does not use its merge
        warnings.filterwarnings("ignore", "TorchaoLoraLinear was instantiated", UserWarning)
        model.add_adapter(config)
    if set(config.target_parameters or ()) != set(experts):
        reason = f"peft would adapt the fused experts instead of {targets}"
        raise InvalidConfig([FieldError("policy.adapter.targets", reason)])
    config.target_parameters = experts or None
    config.base_model_name_or_path, config.revision = base, revision or None
    dtype = getattr(torch, adapter.dtype)
    for weight in adapter_weights(model).values():
        weight.data = weight.data.to(dtype)
    model.eval()


def target_modules(model: PreTrainedModel, targets: Sequence[str]) -> list[str]:
    """Return the names of the linear layers to adapt, each as the shortest name that matches no other
    layer.
    """
    head = model.get_output_embeddings()
    reserved_names = reserved_layers(name for name, _ in model.named_parameters())
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and module is not head
        and not is_fused(name)
        and not is_outside_text_model(name)
        and _last_part(name) not in reserved_names
    ]
    names_outside_text = {
        _last_part(name)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and is_outside_text_model(name)
    }
    matching_names: set[str] = set()
    for target in targets:
        matches = [name for name in linear if _matches_target(name, target)]
        if not matches:
            available = ", ".join(sorted({_last_part(name) for name in linear})) or "no linear layers"
            reason = f"{target!r} names no linear layer of a {model.config.model_type}; it has {available}"
            raise InvalidConfig([FieldError("policy.adapter.targets", reason)])
        matching_names.update(matches)
    remaining_names = names_outside_text | {_last_part(name) for name in linear if name not in matching_names}
    return sorted(
        {name if _last_part(name) in remaining_names else _last_part(name) for name in matching_names}
    )


def expert_weights(model: PreTrainedModel) -> list[str]:
    """Return the names of the routed experts' weights, each of which holds all experts of a layer.

    Raise InvalidConfig if the model has none.
    """
    names = {
        ".".join(name.split(".")[-2:])
        for name, weight in model.named_parameters()
        if weight.ndim == 3 and f".{EXPERTS}." in name
    }
    if not names:
        reason = f"names experts, but a {model.config.model_type} has none whose weights are one tensor"
        raise InvalidConfig([FieldError("policy.adapter.targets", reason)])
    return sorted(names)


def _matches_target(name: str, target: str) -> bool:
    if target == "attention":
        return any("attn" in segment or "attention" in segment for segment in name.split(".")[:-1])
    return target in ("all_linear", name) or name.endswith(f".{target}")


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def is_adapted(model: nn.Module) -> bool:
    """Return whether an adapter was added to the model."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def is_lora_linear(module: nn.Module) -> bool:
    """Return whether a layer is a linear layer with a LoRA adapter and no other change."""
    return f"{type(module).__module__}.{type(module).__name__}" in LORA_LINEAR


def is_lora_experts(module: nn.Module) -> bool:
    """Return whether a module holds routed experts with a LoRA adapter on one of their weights."""
    return f"{type(module).__module__}.{type(module).__name__}" == LORA_EXPERTS


def adapter_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights A and B of every adapted layer, by their names in an adapter file."""
    return {
        f"base_model.model.{name.replace(f'.{NAME}.', '.')}": weight
        for name, weight in model.named_parameters()
        if ".lora_A." in name or ".lora_B." in name
    }


@torch.no_grad()
def load_adapter_weights(model: PreTrainedModel, directory: Path) -> None:
    """Load an adapter's weights from a directory, or raise BadAdapter unless they fit exactly."""
    try:
        saved_weights = load_file(directory / ADAPTER_WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise BadAdapter(f"{ADAPTER_WEIGHTS} cannot be read: {error}") from error
    weights = adapter_weights(model)
    if unexpected := sorted(weights.keys() ^ saved_weights.keys()):
        raise BadAdapter(f"it is for other layers, e.g. {unexpected[0][:200]}")
    for name, weight in weights.items():
        if weight.shape != saved_weights[name].shape:
            shapes = f"{list(saved_weights[name].shape)}, the policy expects {list(weight.shape)}"
            raise BadAdapter(f"{name} has shape {shapes}")
        weight.copy_(saved_weights[name])


def base_model(model: PreTrainedModel) -> PreTrainedModel:
    """Return the base of an adapted model. Both share their weights."""
    return _plain_model(model, lambda layer: layer.get_base_layer())


@torch.no_grad()
def merged_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy with each adapter merged into its weight. Weights without an adapter are shared."""
    return _plain_model(model, _merge_layer)


def _merge_layer(layer: Any) -> nn.Module:
    if is_lora_experts(layer):
        return _merged_experts(layer)
    base = layer.base_layer
    merged_layer = nn.Linear(base.in_features, base.out_features, bias=False, device="meta")
    weight = base.weight.dequantize() if hasattr(base.weight, "qdata") else base.weight
    merged_weight = weight.float() + layer.get_delta_weight(NAME).float()
    merged_layer.weight = nn.Parameter(merged_weight.to(weight.dtype), requires_grad=False)
    merged_layer.bias = base.bias
    return merged_layer


def _merged_experts(layer: Any) -> nn.Module:
    """Return the merged experts. peft wraps them once for each of their adapted weights."""
    merged_module = copy.copy(layer.get_base_layer())
    merged_module._parameters = dict(merged_module._parameters)  # noqa: SLF001 - a shallow copy shares it
    while is_lora_experts(layer):
        weight = layer.get_param()
        merged_weight = (weight.float() + layer.get_delta_weight(NAME).float()).to(weight.dtype)
        merged_module._parameters[layer.parameter_name] = nn.Parameter(merged_weight, requires_grad=False)  # noqa: SLF001
        layer = layer.base_layer
    return merged_module


def _plain_model(model: PreTrainedModel, change: Callable[[Any], nn.Module]) -> PreTrainedModel:
    plain_model = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    for module in [module for module in plain_model.modules() if not is_lora_experts(module)]:
        for name, child in module.named_children():
            if is_lora_linear(child) or is_lora_experts(child):
                setattr(module, name, change(child))
    plain_model.__dict__.pop("peft_config", None)
    plain_model._hf_peft_config_loaded = False  # noqa: SLF001 - transformers has no public way to reset it
    return plain_model


def digest_weights(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of weights with their names and types."""
    hasher = sha256()
    for name, weight in sorted(weights.items()):
        hasher.update(f"{name} {weight.dtype} {list(weight.shape)}".encode())
        hasher.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().data)  # detach: bytes
    return hasher.hexdigest()
