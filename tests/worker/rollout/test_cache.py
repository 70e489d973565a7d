"""The growing cache: the numbers of transformers' own, written in place."""

import pytest
import torch
from transformers import DynamicCache

from tests.models.architectures import build
from worker.rollout.cache import GrowingLayer, growing_cache


def parts(rows, tokens):
    return torch.randn(rows, 2, tokens, 4), torch.randn(rows, 2, tokens, 4)


def test_a_layer_holds_what_was_appended_and_selected():
    own, other = GrowingLayer(6), DynamicCache(config=build("gpt_neox").config).layers[0]
    for chosen, tokens in ((None, 3), ([0, 0, 1], 1), ([2], 1), ([0, 0], 4)):
        if chosen is not None:
            own.reorder_cache(torch.tensor(chosen))
            other.reorder_cache(torch.tensor(chosen))
        keys, values = parts(2 if chosen is None else len(chosen), tokens)
        for found, wanted in zip(own.update(keys, values), other.update(keys, values), strict=True):
            assert torch.equal(found, wanted)
    assert own.get_seq_length() == other.get_seq_length() == 9  # beyond the room that it began with


def test_a_token_is_written_without_copying_the_others():
    layer = GrowingLayer(8)
    first, _ = layer.update(*parts(2, 3))
    for _ in range(5):
        keys, _ = layer.update(*parts(2, 1))
        assert keys.data_ptr() == first.data_ptr()
    keys, _ = layer.update(*parts(2, 1))
    assert keys.data_ptr() != first.data_ptr()


@pytest.mark.parametrize(("name", "growing"), [("gpt_neox", 2), ("gemma3", 1), ("lfm2", 1), ("mistral", 0)])
def test_only_layers_that_grow_are_replaced(name, growing):
    layers = growing_cache(build(name).config, tokens=8).layers
    assert sum(type(layer) is GrowingLayer for layer in layers) == growing
