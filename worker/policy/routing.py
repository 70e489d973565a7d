"""Record the expert choices of a mixture's routers, and replay those of the sampler.

L is the number of layers with a router, E that of experts per layer, and K that of experts per token.
"""

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from worker.policy.logprobs import TokenLogprobs, token_logprobs
from worker.policy.packing import is_packed, packed_places
from worker.policy.token_batch import TokenBatch, prediction_mask

ROUTERS = ("MixtralTopKRouter", "OlmoeTopKRouter", "Qwen2MoeTopKRouter", "Qwen3MoeTopKRouter")
"""Router classes that choose by a softmax over their logits and return (logits, scores, experts)."""


def routers(model: nn.Module) -> list[nn.Module]:
    """Return the routers of a model, layer by layer. A dense model has none."""
    return [module for module in model.modules() if type(module).__name__ in ROUTERS]


def expert_ids(model: PreTrainedModel) -> torch.dtype:
    """Return the smallest integer type that holds an expert's number."""
    router: Any = routers(model)[0]
    return torch.uint8 if router.num_experts <= 256 else torch.int16


class Replay(NamedTuple):
    """The experts to which the N tokens of a forward pass are routed."""

    experts: Tensor
    """Expert numbers, (N, L, K)."""
    is_known: Tensor
    """Mask (N,) bool of the tokens whose experts are known. For other tokens the router decides."""


class RouterWatch:
    """Records, inside a `with` block, the outputs of each router for the N tokens of the newest forward
    pass.
    """

    def __init__(self, model: nn.Module, replay: Replay | None = None) -> None:
        self.routers, self.replay = routers(model), replay
        self.router_outputs: list[tuple[Tensor, Tensor]] = [(torch.empty(0), torch.empty(0))] * len(
            self.routers
        )
        self.handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        """Start recording."""
        for layer, router in enumerate(self.routers):
            self.handles.append(router.register_forward_hook(self._hook(layer)))
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the model."""
        for handle in self.handles:
            handle.remove()

    def logprobs(self) -> Tensor:
        """Return the log-probabilities of the experts, (N, L, E), float32, without gradient."""
        return torch.stack([logits for logits, _ in self.router_outputs], dim=1).log_softmax(dim=-1)

    def experts(self) -> Tensor:
        """Return the routers' own choices, (N, L, K), even if other choices were replayed."""
        return torch.stack([experts for _, experts in self.router_outputs], dim=1)

    def _hook(self, layer: int) -> Any:
        def note(router: Any, _: Any, output: tuple[Tensor, Tensor, Tensor]) -> Any:
            logits, scores, experts = output
            self.router_outputs[layer] = (
                logits.detach().float(),
                experts,
            )  # detach: for metrics and weights only
            if self.replay is None:
                return None
            forced_experts, is_known = self.replay.experts[:, layer].long(), self.replay.is_known[:, None]
            weights = logits.float().softmax(dim=-1).gather(1, forced_experts)
            if getattr(router, "norm_topk_prob", True):
                weights = weights / weights.sum(dim=-1, keepdim=True)
            return (
                logits,
                torch.where(is_known, weights.to(scores.dtype), scores),
                torch.where(is_known, forced_experts, experts),
            )

        return note


class Routed(NamedTuple):
    """Log-probabilities of a batch and, for a mixture, the routing of the states that predict its tokens."""

    scored: TokenLogprobs
    logprobs: Tensor | None = None
    """Log-probabilities of the experts, (B, T, L, E), 0 on padding."""
    experts: Tensor | None = None
    """The routers' own choices, (B, T, L, K), 0 on padding."""


def routed_logprobs(
    model: PreTrainedModel, batch: TokenBatch, *, temperature: float, entropy_gradient: bool = False
) -> Routed:
    """Return `token_logprobs` with routing. The sampler's experts are replayed if they are known."""
    with RouterWatch(model, _replay(batch, is_packed=is_packed(model))) as watch:
        token_scores = token_logprobs(
            model, batch, temperature=temperature, entropy_gradient=entropy_gradient
        )
    if not watch.routers:
        return Routed(token_scores)
    rows, tokens = batch.mask.nonzero(as_tuple=True)
    columns = batch.prompt_lengths.to(rows.device)[rows] + tokens - 1
    source_indices = (
        packed_places(batch, rows, columns) if is_packed(model) else rows * (batch.ids.shape[1] - 1) + columns
    )
    router_values = [
        values.new_zeros(*batch.mask.shape, *values.shape[1:]).index_put(
            (rows, tokens), values[source_indices]
        )
        for values in (watch.logprobs(), watch.experts())
    ]
    return Routed(token_scores, *router_values)


def replayed_experts(batch: TokenBatch) -> Tensor | None:
    """Return the sampler's experts (B, T, L, K) for the states that predict the tokens, 0 on padding."""
    if batch.routes is None:
        return None
    rows, tokens = batch.mask.nonzero(as_tuple=True)
    columns = batch.prompt_lengths.to(rows.device)[rows] + tokens - 1
    experts = batch.routes[rows, columns].long()
    return experts.new_zeros(*batch.mask.shape, *experts.shape[1:]).index_put((rows, tokens), experts)


def _replay(batch: TokenBatch, *, is_packed: bool) -> Replay | None:
    if batch.routes is None:
        return None
    input_mask = prediction_mask(batch)
    if is_packed:
        return Replay(batch.routes[input_mask], input_mask[input_mask])
    return Replay(batch.routes.flatten(0, 1), input_mask.flatten())
