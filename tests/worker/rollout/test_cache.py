"""Tests of the growing cache, which is written in place and must match transformers' cache."""

import pytest
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from tests.models.architectures import build
from worker.rollout import decoders
from worker.rollout.cache import GrowingLayer, SlidingLayer
from worker.rollout.decoders import GenericDecoder


def key_value_tensors(rows, tokens):
    return torch.randn(rows, 2, tokens, 4), torch.randn(rows, 2, tokens, 4)


def test_a_token_is_written_without_copying_the_others():
    layer = GrowingLayer(2, 8)
    first, _ = layer.update(*key_value_tensors(2, 3))
    for _ in range(5):
        keys, _ = layer.update(*key_value_tensors(2, 1))
        assert keys.data_ptr() == first.data_ptr()
    keys, _ = layer.update(*key_value_tensors(2, 1))
    assert keys.data_ptr() != first.data_ptr()


@pytest.mark.parametrize("tokens", [6, 11, 40])
def test_a_sliding_window_matches_transformers(tokens):
    """Prompts are shorter or longer than the window of 8, and rows join and leave."""
    for prompt in (3, 7, 8, 20):
        sliding, dynamic = SlidingLayer(8, 2, tokens), DynamicSlidingWindowLayer(8)
        rows = 2
        for step, count in enumerate([prompt, *[1] * 12, 3, *[1] * 4]):
            if step in {1, 4, 9}:
                row_order = torch.tensor([[0, 0, 1], [2, 1], [1, 0]][step // 4])
                sliding.reorder_cache(row_order)
                dynamic.reorder_cache(row_order)
                rows = len(row_order)
            keys, values = key_value_tensors(rows, count)
            assert sliding.get_mask_sizes(count) == dynamic.get_mask_sizes(count)
            for states, expected in zip(
                sliding.update(keys, values), dynamic.update(keys, values), strict=True
            ):
                assert torch.equal(states, expected), (prompt, step)


@pytest.mark.parametrize("name", ["gemma3", "mistral", "gpt_oss", "cohere2"])
def test_decoding_beyond_a_window_matches_the_cache_of_transformers(name, monkeypatch):
    """Logits of 30 tokens after prompts of 12 and 20 tokens, with a window of 16, are bit-identical."""
    model = build(name)

    def logits():
        decoder = GenericDecoder(model)
        ids = torch.arange(40).view(2, 20)
        mask = torch.ones_like(ids)
        mask[0, :8] = 0
        logits_by_step = [decoder.prefill(ids, mask, max_rows=4, max_new_tokens=30)]
        decoder.select(torch.tensor([0, 0, 1, 1]))
        for step in range(29):
            if step == 12:
                decoder.select(torch.tensor([3, 1]))
            logits_by_step.append(decoder.step(torch.arange(4 if step < 12 else 2) + step + 3))
        return logits_by_step

    with torch.inference_mode():
        expected = logits()
        monkeypatch.setattr(decoders, "growing_cache", lambda config, **_: DynamicCache(config=config))
        assert all(map(torch.equal, expected, logits()))
