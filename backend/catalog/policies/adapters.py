"""Check adapter directories that peft has written. Only LoRA adapters for the named policy are accepted."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from backend.catalog.policies.directories import has_outside_links, read_config
from backend.catalog.policies.model_shape import is_linear
from backend.catalog.policies.weight_files import Weight
from backend.config.adapters import LoraAdapter

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

PLAIN_LORA_VALUES: Mapping[str, tuple[Any, ...]] = {
    "alora_invocation_tokens": (None,),
    "alpha_pattern": (None, {}),
    "bias": (None, "none"),
    "exclude_modules": (None, []),
    "fan_in_fan_out": (None, False),
    "layer_replication": (None,),
    "layers_to_transform": (None,),
    "lora_bias": (None, False),
    "megatron_config": (None,),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "trainable_token_indices": (None,),
    "use_bdlora": (None, False),
    "use_dora": (None, False),
    "use_qalora": (None, False),
}
"""Values of fields in adapter_config.json with which the adapter is a plain LoRA adapter."""


def adapter_error(directory: Path, policy: str, *, root: Path) -> str:
    """Return the reason why a directory has no usable LoRA adapter for `policy`, or "" if it has one."""
    if not directory.is_dir():
        return f"is not a directory of MODELS_DIR ({root})"
    if has_outside_links(directory, root.expanduser().resolve()):
        return "the directory, or a file in it, is a symbolic link that leads out of MODELS_DIR"
    if not (directory / ADAPTER_WEIGHTS).is_file():
        return f"the directory holds no {ADAPTER_WEIGHTS}"
    config = read_config(directory, ADAPTER_CONFIG)
    if config is None:
        return f"the directory has no readable {ADAPTER_CONFIG}"
    if config.get("peft_type") != "LORA":
        return f"is an adapter of type {str(config.get('peft_type'))[:40]!r}; expected LORA"
    if reason := _base_error(config, policy):
        return reason
    for name, values in PLAIN_LORA_VALUES.items():
        if config.get(name) not in values:
            return f"its {ADAPTER_CONFIG} uses {name}, which is not supported"
    try:
        parse_adapter(config)
    except ValidationError as error:
        field, message = error.errors()[0]["loc"], error.errors()[0]["msg"]
        return f"its {ADAPTER_CONFIG} has no usable {field[0] if field else 'values'}: {message}"
    return ""


def parse_adapter(config: Mapping[str, Any]) -> LoraAdapter:
    """Return the adapter that an adapter_config.json describes. Raises ValidationError."""
    targets = config.get("target_modules")
    modules = [targets] if isinstance(targets, str) else targets if isinstance(targets, list) else []
    experts = ["experts"] if config.get("target_parameters") else []
    return LoraAdapter.model_validate(
        {
            "rank": config.get("r"),
            "alpha": config.get("lora_alpha"),
            "rslora": bool(config.get("use_rslora")),
            "targets": ",".join(map(str, [*modules, *experts])).replace("all-linear", "all_linear"),
        }
    )


def is_fused(module: str) -> bool:
    """Return whether a module is the output projection of a Mamba layer, which cannot have an adapter.

    The fused kernel reads only the weight of the projection.
    """
    return module.endswith(".mamba.out_proj")


EXPERT_LAYERS = frozenset({"gate_proj", "up_proj", "down_proj"})


def reserved_layers(weights: Iterable[str]) -> frozenset[str]:
    """Return the names of linear layers that peft treats as parts of the routed experts of a model.

    peft replaces them with targets inside the fused experts, and leaves out the dense and shared layers.
    """
    return EXPERT_LAYERS if any(".experts." in name for name in weights) else frozenset()


def adapter_filter(adapter: LoraAdapter | None, weights: Iterable[Weight]) -> Callable[[Weight], bool]:
    """Return a predicate for the weights that an adapter changes, as in worker/policy/adapter.py.

    `weights` are all weights of the model.
    """
    targets = adapter.targets.replace(" ", "").split(",") if adapter else []
    reserved_names = reserved_layers(weight.name for weight in weights)

    def is_target(weight: Weight) -> bool:
        if not targets or not is_linear(weight):
            return False
        module = weight.name.removesuffix(".weight")
        if is_fused(module) or weight.module_name in reserved_names:
            return False
        in_attention = any(
            "attn" in name_part or "attention" in name_part for name_part in module.split(".")[:-1]
        )
        return any(
            target == "all_linear"
            or (target == "attention" and in_attention)
            or module == target
            or module.endswith(f".{target}")
            for target in targets
        )

    return is_target


def adapts_experts(adapter: LoraAdapter | None) -> bool:
    """Return whether an adapter is added to the routed experts of a mixture."""
    return adapter is not None and "experts" in adapter.targets.replace(" ", "").split(",")


def _base_error(config: Mapping[str, Any], policy: str) -> str:
    """Return the reason why an adapter does not belong to a policy, or "" if it does.

    Names are compared without the owner or folder, so that a hub name and a local directory match.
    """
    base = str(config.get("base_model_name_or_path") or "")
    if PurePosixPath(base).name == PurePosixPath(policy).name:
        return ""
    return (
        f"is an adapter for {base[:200]!r}, not for the policy {policy!r} "
        f"(base_model_name_or_path in its {ADAPTER_CONFIG})"
    )
