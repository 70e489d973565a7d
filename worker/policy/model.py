"""Load a policy: a built-in one, a local directory or a model of the Hugging Face hub."""

import logging
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from backend.base.settings import Settings
from backend.catalog.policies.adapters import ADAPTER_CONFIG, adapter_error, parse_adapter
from backend.catalog.policies.directories import directory_error, read_config
from backend.config import policies
from backend.config.adapters import ContinuedAdapter, LoraAdapter, NoAdapter
from backend.config.sections import PolicyConfig
from worker.hub import fetch_files
from worker.out_of_memory import is_memory_error
from worker.policy.adapter import BadAdapter, add_adapter, digest_weights, load_adapter_weights
from worker.policy.copies import copy_trainable
from worker.policy.head import check_head
from worker.policy.prompt_form import PromptForm, invalid, prompt_form, shorten
from worker.policy.quantized import quantise_base
from worker.policy.text_part import freeze_beside_text
from worker.policy.token_texts import TokenTexts
from worker.policy.tokenizer_process import Refused, TokenizerProcess
from worker.prompt import Prompt

logger = logging.getLogger(__name__)

BUILT_IN = {offer.name: Path(__file__).parent / offer.name for offer in policies.BUILT_IN}
FETCHED = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]
"""Patterns of the files fetched from a hub repository. Pickled weights and code are never fetched."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model in evaluation mode (without dropout) with its tokenizer."""

    model: PreTrainedModel
    tokenizer: Any
    form: PromptForm
    """Form in which prompts are given to the policy."""
    context: int
    """Maximum total number of tokens of prompt and completion."""
    pad_id: int
    stop_ids: tuple[int, ...]
    """Ids of the tokens that end a completion."""
    token_texts: TokenTexts
    base_sha256: str = ""
    """SHA-256 of the frozen weights under an adapter, or "" without an adapter."""

    def encode(self, prompt: Prompt | str, *, room: int) -> list[int]:
        """Return the token ids of a prompt that leaves `room` tokens of the context for the completion.

        A string is treated as a prompt with that text. Raise InvalidConfig if the prompt is empty, too long,
        or cannot be written in the policy's form.
        """
        full_prompt = Prompt("", prompt, "", "") if isinstance(prompt, str) else prompt
        ids = self.form.ids(full_prompt)
        if len(ids) + room > self.context:
            raise invalid(
                "problems",
                f"the prompt {shorten(full_prompt.text)!r} has {len(ids)} tokens; "
                f"expected at most {max(0, self.context - room)} "
                f"(context {self.context} less max_new_tokens {room})",
            )
        return ids

    @property
    def opens_think(self) -> bool:
        """True if the chat template ends prompts with <think>, so that completions have only the closing
        tag.
        """
        end = self.tokenizer.decode(self.encode("?", room=0)[-16:])
        return str(end).rstrip().endswith("<think>")


def load_policy(config: PolicyConfig, settings: Settings, *, device: torch.device | str = "cpu") -> Policy:
    """Load the policy that a run config names to a device.

    Raise InvalidConfig with the field, the value and the expectation.
    """
    started_at = time.monotonic()
    directory = policy_directory(config, settings)
    check_directory(directory, name=config.name)
    logger.info("loading policy %s as %s on %s", config.name, config.dtype, device)
    policy = open_directory(directory, config, device=device)
    _add_adapter(policy, config, directory, settings)
    parameter_count = sum(parameter.numel() for parameter in policy.model.parameters())
    seconds = time.monotonic() - started_at
    logger.info("policy %s loaded: %.1f M parameters in %.1f s", config.name, parameter_count / 1e6, seconds)
    return policy


def _add_adapter(policy: Policy, config: PolicyConfig, directory: Path, settings: Settings) -> None:
    """Add the adapter that the config describes, if any."""
    adapter = config.adapter
    if isinstance(adapter, NoAdapter):
        return
    is_on_hub = not (config.name in BUILT_IN or (settings.models_dir.expanduser() / config.name).is_dir())
    new_adapter = (
        adapter if isinstance(adapter, LoraAdapter) else _read_adapter(adapter, config.name, settings)
    )
    base_name = config.name if is_on_hub else str(directory)
    add_adapter(policy.model, new_adapter, base=base_name, revision=config.revision if is_on_hub else "")
    if isinstance(adapter, ContinuedAdapter):
        try:
            load_adapter_weights(policy.model, settings.models_dir.expanduser() / adapter.name)
        except BadAdapter as error:
            raise invalid(
                "policy.adapter.name", f"{adapter.name!r} does not fit {config.name!r}: {error}"
            ) from error


def _read_adapter(adapter: ContinuedAdapter, policy: str, settings: Settings) -> LoraAdapter:
    """Return the config of the adapter in its directory."""
    directory = settings.models_dir.expanduser() / adapter.name
    if reason := adapter_error(directory, policy, root=settings.models_dir):
        raise invalid("policy.adapter.name", f"{adapter.name!r}: {reason}")
    return parse_adapter(read_config(directory, ADAPTER_CONFIG) or {}).with_(dtype=adapter.dtype)


def policy_directory(config: PolicyConfig, settings: Settings) -> Path:
    """Return the directory of the policy's files, after downloading a hub model."""
    if config.name in BUILT_IN:
        return BUILT_IN[config.name]
    local = settings.models_dir.expanduser() / config.name
    if local.is_dir():
        check_directory(local, name=config.name, inside=settings.models_dir)
        return local.resolve()
    if not settings.hf_online:
        raise invalid(
            "policy.name",
            f"{config.name!r} is neither built in nor a directory of MODELS_DIR ({settings.models_dir}), "
            "and a hub name needs HF_ONLINE=1",
        )
    return _download(config)


def _download(config: PolicyConfig) -> Path:
    logger.info("fetching policy %s from the Hugging Face hub", config.name)
    try:
        return fetch_files(config.name, patterns=FETCHED, revision=config.revision or None)
    except RevisionNotFoundError as error:
        raise invalid("policy.revision", f"{config.name!r} has no revision {config.revision!r}") from error
    except RepositoryNotFoundError as error:
        raise invalid("policy.name", f"the hub has no public model {config.name!r}") from error
    except (HfHubHTTPError, OSError) as error:
        raise invalid("policy.name", f"{config.name!r} could not be fetched from the hub: {error}") from error


def check_directory(directory: Path, *, name: str, inside: Path | None = None) -> None:
    """Raise InvalidConfig if a directory does not hold a causal language model in safetensors with its
    tokenizer.
    """
    if reason := directory_error(directory, root=inside):
        raise invalid("policy.name", f"{name!r}: {reason}")


def open_directory(directory: Path, config: PolicyConfig, *, device: torch.device | str = "cpu") -> Policy:
    """Load the policy in a directory that `check_directory` accepts."""
    load_options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    transformers.utils.logging.disable_progress_bar()
    process = None if directory in BUILT_IN.values() else _probe_tokenizer(directory, config.name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, **load_options)
        model, report = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=DTYPES[config.dtype],
            use_safetensors=True,
            output_loading_info=True,
            **load_options,
        )
    except Exception as error:  # The libraries may raise any error for a broken file.
        if is_memory_error(error):
            raise
        reason = f"{config.name!r} cannot be opened as a causal LM: {shorten(str(error))}"
        raise invalid("policy.name", reason) from error
    if missing := sorted(map(str, report["missing_keys"])):
        reason = f"{config.name!r}: the weights lack {len(missing)} tensors, e.g. {missing[0]}"
        raise invalid("policy.name", reason)
    base = "" if isinstance(config.adapter, NoAdapter) else digest_weights(dict(model.named_parameters()))
    quantise_base(model, config.quantization, device)
    model.to(device).eval()
    policy = as_policy(model, tokenizer, name=config.name)
    return replace(policy, form=prompt_form(tokenizer, config, process), base_sha256=base)


def _probe_tokenizer(directory: Path, name: str) -> TokenizerProcess:
    """Load and try a directory's tokenizer in a separate process, and return the process.

    Raise InvalidConfig if that fails. In this process nothing could end a tokenizer that hangs.
    """
    process = TokenizerProcess(directory)
    try:
        process.probe()
    except Refused as error:
        reason = shorten(str(error), 200)
        raise invalid("policy.name", f"{name!r}: its tokenizer cannot be opened: {reason}") from error
    return process


def as_policy(model: PreTrainedModel, tokenizer: Any, *, name: str, chat_template: bool = False) -> Policy:
    """Combine a model and a matching tokenizer into a policy."""
    embeddings = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > embeddings:
        raise invalid(
            "policy.name", f"{name!r}: the tokenizer has {len(tokenizer)} tokens, the model only {embeddings}"
        )
    freeze_beside_text(model)
    _train_padding_token(model)
    form = PromptForm(tokenizer, chat_template)
    form.check(name)
    check_head(model, name=name)
    stops = _stop_ids(model, tokenizer)
    if not stops:
        raise invalid("policy.name", f"{name!r}: the tokenizer has no end-of-sequence token")
    return Policy(
        model=model,
        tokenizer=tokenizer,
        form=form,
        context=getattr(model.config.get_text_config(), "max_position_embeddings", None) or sys.maxsize,
        pad_id=stops[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        stop_ids=stops,
        token_texts=TokenTexts(tokenizer),
    )


def _train_padding_token(model: PreTrainedModel) -> None:
    """Enable gradients of the padding token's embedding.

    transformers disables them, but prompts may contain the token: in many chat templates it ends every
    message. Tokens of the padding itself are not part of the loss, so they add no gradient.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None


def _stop_ids(model: PreTrainedModel, tokenizer: Any) -> tuple[int, ...]:
    generation = getattr(model, "generation_config", None)
    eos_ids = generation.eos_token_id if generation is not None else None
    ids = eos_ids if isinstance(eos_ids, list) else [eos_ids]
    return tuple(sorted({index for index in [*ids, tokenizer.eos_token_id] if index is not None}))


def frozen_copy(policy: Policy) -> Policy:
    """Return a copy of the policy without gradients, as reference or as a step's sampler.

    Frozen weights are shared.
    """
    return replace(policy, model=copy_trainable(policy.model).requires_grad_(requires_grad=False))
