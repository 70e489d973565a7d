"""Estimate the memory of a run by part and the workers that it fits on, for the launch form."""

import math
from collections import Counter
from functools import partial

from pydantic import ValidationError
from sqlalchemy.orm import Session

from backend.base.locations import CODE_ROOT
from backend.base.settings import Settings
from backend.catalog.policies.adapters import ADAPTER_CONFIG, parse_adapter
from backend.catalog.policies.architectures import architecture_error
from backend.catalog.policies.directories import read_config
from backend.catalog.policies.fitting import USABLE_MEMORY_FRACTION, fitting_changes
from backend.catalog.policies.hub_models import HubModelError, hub_model
from backend.catalog.policies.memory import ASSUMED_PROMPT_TOKENS, Memory, estimate_memory
from backend.catalog.policies.model_shape import ModelShape, UnknownShape
from backend.catalog.policies.offered import COMMIT_PATTERN, is_built_in
from backend.catalog.policies.weight_files import UnreadableWeights, read_weights
from backend.config.adapters import ContinuedAdapter, LoraAdapter, NoAdapter
from backend.config.engines import ColocatedEngine
from backend.config.problems import FileProblem, ProblemSource, SumsProblem
from backend.config.run import RunConfig
from backend.config.sections import PolicyConfig
from backend.config.sources import checked_file
from backend.experiments.schemas import MemoryEstimate, MemorySlot
from backend.runs.workers.store import live_slots
from backend.storage.models import Worker

BUILT_IN_ROOT = CODE_ROOT / "worker" / "policy"
"""Directory of the files of the built-in policies."""

CHARACTERS_PER_TOKEN = 3
"""Assumed number of characters per token of a prompt: about 4 in English, 2.5 in formulas and code."""

TEMPLATE_TOKENS = 32
"""Number of tokens that a chat template adds to a prompt."""

MAX_SLOTS = 64
"""Maximum number of slots in the form; identical slots of a host count once."""


def memory_estimate(session: Session, config: RunConfig, settings: Settings) -> MemoryEstimate:
    """Return the estimated memory of a run; `unknown` explains why there are no numbers."""
    try:
        shape = _load_shape(config.policy, settings)
        adapter = _load_adapter(config, settings)
    except (UnreadableWeights, UnknownShape, HubModelError) as error:
        return MemoryEstimate(unknown=str(error))
    slots = live_slots(session)
    has_gpu = any(_is_gpu(slot) for slot in slots)
    on_cpu = bool(slots) and not has_gpu
    largest = max((_slot_memory(slot, slots) for slot in slots if _is_gpu(slot)), default=0.0)
    need = _estimate_memory(config, config, shape, adapter, settings, on_cpu=on_cpu, total=largest)
    return MemoryEstimate(
        peak_bytes=need.peak,
        host_bytes=need.host_bytes,
        phase=need.phase,
        parts=dict(sorted(need.parts.items(), key=lambda bytes_by_name: -bytes_by_name[1])),
        prompt_tokens=_prompt_tokens(config, shape, settings),
        device="cpu" if on_cpu else "gpu",
        devices=config.resources.devices,
        nodes=config.resources.nodes,
        slots=[
            _fit_to_slot(slot, count, config, shape, adapter, settings)
            for slot, count in _distinct_slots(slots)[:MAX_SLOTS]
        ],
    )


def memory_warnings(estimate: MemoryEstimate) -> list[str]:
    """Return a sentence if the run does not fit on any worker without changes."""
    known_slots = [slot for slot in estimate.slots if slot.verdict != "unknown"]
    if (
        not known_slots
        or len(known_slots) < len(estimate.slots)
        or any(slot.verdict == "fits" for slot in known_slots)
    ):
        return []
    largest = max(slot.usable_bytes or 0 for slot in known_slots)
    needed_bytes = min(slot.peak_bytes or 0 for slot in known_slots)
    sizes = (
        f"needs about {needed_bytes / 1e9:.1f} GB of memory, "
        f"and no worker has more than {largest / 1e9:.1f} GB"
    )
    return [f"{sizes} for it: the run is expected to run out of memory"]


def _load_shape(policy: PolicyConfig, settings: Settings) -> ModelShape:
    """Load the shape of a policy; raise UnreadableWeights, UnknownShape or HubModelError."""
    name = policy.name
    directory = BUILT_IN_ROOT / name if is_built_in(name) else settings.models_dir / name
    config = read_config(directory)
    if config is not None:
        return ModelShape.from_config(config, read_weights(directory))
    if not settings.hf_online or not COMMIT_PATTERN.fullmatch(policy.revision):
        raise UnknownShape("the files of this policy are not here: its size is unknown until the first run")
    hub = hub_model(name, policy.revision)
    if reason := architecture_error(hub.config):
        raise UnknownShape(reason)
    return ModelShape.from_config(hub.config, hub.weights)


def _load_adapter(config: RunConfig, settings: Settings) -> LoraAdapter | None:
    """Return the adapter; the settings of a continued adapter are read from its directory."""
    adapter = config.policy.adapter
    if isinstance(adapter, NoAdapter):
        return None
    if isinstance(adapter, ContinuedAdapter):
        adapter_config = read_config(settings.models_dir / adapter.name, ADAPTER_CONFIG) or {}
        try:
            return parse_adapter(adapter_config).with_(dtype=adapter.dtype)
        except ValidationError as error:
            raise UnknownShape(f"{ADAPTER_CONFIG} of the adapter does not say how large it is") from error
    return adapter


def _estimate_memory(
    changed_config: RunConfig,
    config: RunConfig,
    shape: ModelShape,
    adapter: LoraAdapter | None,
    settings: Settings,
    *,
    on_cpu: bool,
    total: float = 0.0,
) -> Memory:
    """Return the memory of a config that may differ from the one whose adapter is given.

    `total` is the memory of the GPU in bytes, or 0 if it is not needed.
    """
    engine = changed_config.sampling.engine
    if changed_config.policy.adapter != config.policy.adapter:
        adapter = _load_adapter(changed_config, settings)
    return estimate_memory(
        changed_config,
        shape,
        adapter,
        on_cpu=on_cpu,
        prompt_tokens=_prompt_tokens(changed_config, shape, settings),
        engine_bytes=engine.memory_share * total if isinstance(engine, ColocatedEngine) else 0.0,
    )


def _prompt_tokens(config: RunConfig, shape: ModelShape, settings: Settings) -> int:
    """Return the assumed number of tokens of a prompt, limited by the context."""
    max_prompt_tokens = max(
        1, (shape.size("max_position_embeddings") or 10**9) - config.sampling.max_new_tokens
    )
    policy = config.policy
    longest = max(_source_tokens(source, policy, settings) for source in config.problems)
    template = (
        TEMPLATE_TOKENS + _estimate_tokens(len(policy.system_prompt), policy) if policy.chat_template else 0
    )
    return min(max_prompt_tokens, longest + template)


def _source_tokens(source: ProblemSource, policy: PolicyConfig, settings: Settings) -> int:
    """Return the tokens of the longest sum, or the 95th percentile of a file's prompts; otherwise
    ASSUMED_PROMPT_TOKENS.
    """
    if isinstance(source, SumsProblem):
        return source.operands * (len(str(source.high)) + 1) + 1
    if not isinstance(source, FileProblem):
        return ASSUMED_PROMPT_TOKENS
    try:
        long_prompt_characters = checked_file(source, settings.datasets_dir, trains=False).long_length
    except (ValueError, OSError):  # the form reports the error at the field
        return ASSUMED_PROMPT_TOKENS
    return max(1, _estimate_tokens(long_prompt_characters + len(source.instruction), policy))


def _estimate_tokens(characters: int, policy: PolicyConfig) -> int:
    return math.ceil(characters / (1 if is_built_in(policy.name) else CHARACTERS_PER_TOKEN))


def _is_gpu(slot: Worker) -> bool:
    return slot.device.startswith("cuda")


def _distinct_slots(slots: list[Worker]) -> list[tuple[Worker, int]]:
    """Return one slot of each kind and host, and the number of such slots."""
    kinds: dict[tuple[object, ...], Worker] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for slot in slots:
        kind = (slot.host, slot.device, slot.device_name, _slot_memory(slot, slots))
        kinds.setdefault(kind, slot)
        counts[kind] += 1
    return [(slot, counts[kind]) for kind, slot in kinds.items()]


def _read_statistic(slot: Worker, name: str) -> float:
    value = slot.stats.get(name)
    return float(value) if isinstance(value, int | float) and 0 < value < 2**60 else 0.0


def _slot_memory(slot: Worker, slots: list[Worker]) -> float:
    """Return the memory of a slot: that of a GPU, or an equal share of the machine's; 0 if unknown."""
    if _is_gpu(slot):
        return _read_statistic(slot, "gpu_memory_total_bytes")
    sharing_slots = sum(neighbour.host == slot.host and not _is_gpu(neighbour) for neighbour in slots)
    return _read_statistic(slot, "memory_total_bytes") / max(1, sharing_slots)


def _fit_to_slot(
    slot: Worker,
    count: int,
    config: RunConfig,
    shape: ModelShape,
    adapter: LoraAdapter | None,
    settings: Settings,
) -> MemorySlot:
    on_cpu = not _is_gpu(slot)
    estimate_with = partial(
        _estimate_memory,
        config=config,
        shape=shape,
        adapter=adapter,
        settings=settings,
        on_cpu=on_cpu,
        total=0.0 if on_cpu else _slot_memory(slot, [slot]),
    )
    unchanged_memory = estimate_with(config)
    memory_slot = MemorySlot(
        host=slot.host,
        device_name=slot.device_name,
        slots=count,
        verdict="unknown",
        peak_bytes=unchanged_memory.peak,
    )
    total = _read_statistic(slot, "memory_total_bytes") / count if on_cpu else _slot_memory(slot, [slot])
    if not total:
        return memory_slot
    used_by_others = _read_statistic(slot, "gpu_memory_bytes") if not on_cpu and slot.run_id is None else 0.0
    usable_bytes = max(0.0, USABLE_MEMORY_FRACTION * total - used_by_others)
    host = _read_statistic(slot, "memory_total_bytes")

    def peak(changed_config: RunConfig) -> float:
        memory = estimate_with(changed_config)
        return (
            memory.peak
            if on_cpu or memory.host_bytes <= USABLE_MEMORY_FRACTION * (host or 2**60)
            else float("inf")
        )

    row = _prompt_tokens(config, shape, settings) + config.sampling.max_new_tokens
    changes = fitting_changes(config, peak, usable_bytes, row_tokens=row)
    verdict = "does not fit" if changes is None else "fits with changes" if changes else "fits"
    return memory_slot.model_copy(
        update={"verdict": verdict, "usable_bytes": usable_bytes, "changes": changes or []}
    )
