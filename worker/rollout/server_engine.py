"""The server engine, which uses one or several of the operator's vLLM servers.

The server that the trainer starts (`colocated_engine`) is used in the same way.

Prompts are sent as token ids to /v1/completions. New weights go through a directory that both sides share:
  adapters      /v1/load_lora_adapter, with a name for each version, which requests and answers contain
  all weights   /collective_rpc reload_weights, then /update_weight_version, which /weight_info reports
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from backend.base.errors import EngineFailed
from backend.base.settings import Settings
from backend.config.engines import ServerEngine as ServerConfig
from worker.policy.adapter import is_adapted
from worker.policy.model import Policy
from worker.rollout.engine import PolicySampler, SamplingLike
from worker.rollout.engine_client import BadResponse, EngineClient, Rejected, Request
from worker.rollout.server_answers import (
    OtherWeights,
    check_emptied,
    read_completions,
    read_models,
    read_tokens,
    read_version,
)
from worker.rollout.spot_check import mismatch
from worker.types import Completion

TOKENIZER_PROBE = "What is 12 + 34? \\boxed{46}\n\tdef f(x): return x**2  # naïve 中文"
"""Text on which tokenizers differ, used to compare the server's tokenizer with the policy's."""

BASE_ANSWER_BYTES = 4_000_000
MAX_BYTES_PER_TOKEN = 256
"""Maximum number of bytes of an answer per requested token, in addition to BASE_ANSWER_BYTES."""

CLOSING_SECONDS = 10.0
"""Seconds that a server gets to unload the run's last adapter."""

MISSING_ROUTE_STATUSES = (404, 405)
"""Status codes of a server that lacks a route."""


def server_engine(
    config: ServerConfig,
    policy: Policy,
    settings: Settings,
    *,
    run_id: str,
    attempt: int,
    max_tokens: int,
) -> "ServerEngine":
    """Create the engine for the servers of ENGINE_URL. `max_tokens` is the maximum number of tokens in an
    answer.
    """
    if not settings.engine_urls:
        raise EngineFailed("sampling.engine is server, and ENGINE_URL is not set here")
    client = EngineClient(
        settings.engine_urls,
        settings.engine_api_key,
        settings.engine_concurrency,
        config.timeout_seconds,
        config.retries,
        answer_bytes(max_tokens),
    )
    return ServerEngine(
        client,
        policy,
        settings.engine_directory,
        run_id=run_id,
        attempt=attempt,
        model=settings.engine_model,
        largest_mismatch=config.largest_mismatch,
    )


def answer_bytes(tokens: int) -> int:
    """Return the maximum bytes of an answer with `tokens` tokens."""
    return BASE_ANSWER_BYTES + MAX_BYTES_PER_TOKEN * tokens


class ServerEngine(PolicySampler):
    """Samples with the servers of a client, whose weights follow the policy's."""

    def __init__(
        self,
        client: EngineClient,
        policy: Policy,
        directory: Path,
        *,
        run_id: str,
        attempt: int,
        model: str,
        largest_mismatch: float,
    ) -> None:
        """Create the engine.

        Weights are passed through `directory`. `model` is the name of the served model, or "" if there is
        only one.
        """
        self.client, self.policy, self.name = client, policy, f"{run_id}-{attempt}"
        self.directory = directory / self.name
        for old_directory in directory.glob(f"{run_id}-*"):  # of a killed attempt
            shutil.rmtree(old_directory, ignore_errors=True)
        self.largest_mismatch = largest_mismatch
        self.is_adapter = is_adapted(policy.model)
        self.base = model
        """Name of the model on the servers without an adapter."""
        self.version = -1
        self.tells_version = not self.is_adapter
        """True if the servers report which version of all weights they hold."""
        self.sync_seconds = 0.0

    @property
    def is_unwanted(self) -> Callable[[], bool]:
        """See Engine."""
        return self.client.is_unwanted

    @is_unwanted.setter
    def is_unwanted(self, ask: Callable[[], bool]) -> None:
        self.client.is_unwanted = ask

    def check(self) -> str:
        """Check that the servers are reachable and serve one model with the policy's tokenizer. See
        Engine.
        """
        served_models = self._query_each("GET", "/v1/models", read_models)
        for server, models in enumerate(served_models):
            self._choose(server, models)
        self._check_tokenizer()
        transfer = "adapters" if self.is_adapter else "all weights through a directory"
        count = "one server" if len(served_models) == 1 else f"{len(served_models)} servers"
        servers = f"{count} of {self.client.title} with the model {self.base[:100]}"
        return f"{servers} will sample; {transfer} will be sent"

    def _choose(self, server: int, models: list[dict[str, Any]]) -> None:
        """Select the model on a server. Its name must be the same on all servers."""
        engine_name = f"the engine at {self.client.server_name(server)}"
        base_models = [model for model in models if not model.get("parent")]
        if not self.base and len(base_models) != 1:
            raise EngineFailed(
                f"{engine_name} serves {len(base_models)} models: ENGINE_MODEL must name one of them"
            )
        self.base = self.base or str(base_models[0]["id"])
        base_model = next((model for model in models if model["id"] == self.base), None)
        if base_model is None:
            raise EngineFailed(f"{engine_name} does not serve the model {self.base[:100]!r}")

    def _check_tokenizer(self) -> None:
        body = {"model": self.base, "prompt": TOKENIZER_PROBE, "add_special_tokens": False}
        policy_ids = self.policy.form.encode(TOKENIZER_PROBE, add_special_tokens=False)
        for server, tokens in enumerate(
            self.client.send_to_each(Request("POST", "/tokenize", body, read_tokens))
        ):
            if isinstance(tokens, Rejected) and tokens.status in MISSING_ROUTE_STATUSES:
                continue  # the first answers will show whether it fits
            if isinstance(tokens, Rejected):
                raise EngineFailed(str(tokens))
            if tokens != policy_ids:
                engine_name = f"the engine at {self.client.server_name(server)}"
                raise EngineFailed(
                    f"{engine_name} has another tokenizer: it serves another model than the policy"
                )

    def _query_each(self, method: str, path: str, read: Callable[[Any], Any] | None) -> list[Any]:
        """Return the value of every server. Raise EngineFailed if one refuses."""
        answers = self.client.send_to_each(Request(method, path, None, read))
        for answer in answers:
            if isinstance(answer, Rejected):
                raise EngineFailed(str(answer)) from answer
        return answers

    def sync(self, version: int, policy: Policy) -> None:
        """See Engine."""
        self.policy = policy
        if version == self.version:
            return
        started_at = time.perf_counter()
        self._write(version)
        self._send(version)
        self._forget(oldest_version=version)
        self.version = version
        self.sync_seconds += time.perf_counter() - started_at

    def _version_name(self, version: int) -> str:
        return f"grpolab-{self.name}-v{version}"

    def _write(self, version: int) -> None:
        """Write the weights to a directory that is renamed to its final name when it is complete."""
        draft = self.directory / f".v{version}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        self.policy.model.save_pretrained(draft)
        final = self._path(version)
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)

    def _path(self, version: int) -> Path:
        return self.directory / f"v{version}"

    def _send(self, version: int) -> None:
        """Make the servers load the weights of a version. Servers that have them already may refuse them."""
        if self.is_adapter:
            body = {"lora_name": self._version_name(version), "lora_path": str(self._path(version))}
            answers = self._post("/v1/load_lora_adapter", body)
            served_models = self._query_each("GET", "/v1/models", read_models) if any(answers) else answers
            rejections: list[Rejected | None] = [
                error
                for error, models in zip(answers, served_models, strict=True)
                if error and not any(model["id"] == self._version_name(version) for model in models)
            ]
        else:
            path = {"weights_path": str(self._path(version))}
            rejections = self._post("/collective_rpc", {"method": "reload_weights", "kwargs": path})
            rejections += self._post("/reset_prefix_cache", None, check_emptied)
            version_answers = self._post(
                "/update_weight_version", {"new_version": self._version_name(version)}
            )
            self.tells_version = not any(
                error and error.status in MISSING_ROUTE_STATUSES for error in version_answers
            )
            rejections += [error for error in version_answers if error and self.tells_version]
        if error := next(filter(None, rejections), None):
            raise EngineFailed(f"{error}: new weights cannot be sent, see docs/engines.md")

    def _post(self, path: str, body: Any, read: Callable[[Any], Any] | None = None) -> list[Rejected | None]:
        """Send a request to every server and return its refusal, or None if it accepted."""
        answers = self.client.send_to_each(Request("POST", path, body, read))
        return [answer if isinstance(answer, Rejected) else None for answer in answers]

    def _forget(self, *, oldest_version: int) -> None:
        """Remove the weights of older versions from the directory and from the servers."""
        for path in self.directory.glob("v*"):
            version = int(path.name[1:])
            if version < oldest_version:
                if self.is_adapter:
                    self._unload(version)
                shutil.rmtree(path, ignore_errors=True)

    def _unload(self, version: int) -> None:
        with suppress(EngineFailed):  # a failure only costs the server's memory
            self._post("/v1/unload_lora_adapter", {"lora_name": self._version_name(version)})

    def generate(
        self,
        prompt_ids: Sequence[list[int]],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        stops: Sequence[int] = (),  # noqa: ARG002 - the server does not stop at them
    ) -> list[list[Completion]]:
        """See Samples. Weights that a server has lost, for example by a restart, are sent again once.

        Raise EngineFailed for other weights, or if the spot check finds other log-probabilities.
        """
        seeds = torch.randint(2**31, (len(prompt_ids),), generator=generator).tolist()
        requests = [
            self._request(ids, group_size, sampling, seed)
            for ids, seed in zip(prompt_ids, seeds, strict=True)
        ]
        try:
            groups = self._sample_version(requests)
        except OtherWeights:
            self._send(self.version)
            try:
                groups = self._sample_version(requests)
            except OtherWeights:
                reason = "answers with other weights than it was given: is another client using it?"
                raise EngineFailed(f"the engine at {self.client.title} {reason}") from None
        self._check_logprobs(prompt_ids, groups, sampling)
        return groups

    def _request(self, ids: list[int], group_size: int, sampling: SamplingLike, seed: int) -> Request:
        model = self._version_name(self.version) if self.is_adapter else self.base
        completion_count = (
            group_size if sampling.temperature else 1
        )  # vLLM refuses to repeat a deterministic answer
        body = {
            "model": model,
            "prompt": ids,
            "n": completion_count,
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": seed,
            "stop_token_ids": list(self.policy.stop_ids),
            "skip_special_tokens": False,
            "logprobs": 0,
            "return_token_ids": True,
        }

        def read(answer: Any) -> list[Completion]:
            try:
                completions = read_completions(
                    answer,
                    self.policy,
                    ids,
                    model=model,
                    count=completion_count,
                    sampling=sampling,
                    version=self.version,
                )
                return completions * (group_size // completion_count)
            except (AttributeError, KeyError, TypeError) as error:
                raise BadResponse(f"it has another form than vLLM's ({type(error).__name__})") from None

        return Request("POST", "/v1/completions", body, read)

    def _sample_version(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Return the completions, all by the current version of the weights. Raise OtherWeights."""
        try:
            self._check_version()
            groups: list[list[Completion]] = self.client.send_all(requests)
            self._check_version()
        except Rejected as error:
            if error.status == 404 and self.is_adapter:
                raise OtherWeights from None
            raise EngineFailed(str(error)) from None
        return groups

    def _check_version(self) -> None:
        if self.tells_version:
            versions = self._query_each("GET", "/weight_info", read_version)
            if any(version != self._version_name(self.version) for version in versions):
                raise OtherWeights

    def _check_logprobs(
        self,
        prompt_ids: Sequence[Sequence[int]],
        groups: Sequence[Sequence[Completion]],
        sampling: SamplingLike,
    ) -> None:
        if sampling.temperature == 0:
            return
        k3, limit = mismatch(self.policy, prompt_ids, groups, sampling), self.largest_mismatch
        if k3 > limit:
            raise EngineFailed(
                f"the log-probabilities of the engine at {self.client.title} are not those of the policy: "
                f"k3 is {k3:.3g} nats per token, at most {limit:g} is allowed "
                "(sampling.engine.largest_mismatch). It serves another model, or was not started with the "
                "--logprobs-mode that ENGINE_LOGPROBS names"
            )

    def release_memory(self) -> None:
        """See Engine. Do nothing, because other runs may need the servers."""

    def order(self, path: str) -> None:
        """Send a POST request without a body to a route of every server. Raise EngineFailed if one
        refuses.
        """
        self._query_each("POST", path, None)

    def forget_sent(self) -> None:
        """Send the weights again at the next `sync`, because the servers have lost them."""
        self.version = -1

    def take_metrics(self) -> dict[str, float]:
        """See Engine. Return the number of retries, and the seconds spent sending weights."""
        metrics = {"sampling/engine_retries": self.client.retried, "time/sync_seconds": self.sync_seconds}
        self.client.retried, self.sync_seconds = 0, 0.0
        return metrics

    def close(self) -> None:
        """See Engine."""
        if self.is_adapter and self.version >= 0:
            self.client = replace(
                self.client, retries=0, timeout_seconds=CLOSING_SECONDS, is_unwanted=lambda: False
            )
            self._unload(self.version)
        shutil.rmtree(self.directory, ignore_errors=True)
