"""Tests of reading safetensors headers: names and shapes of valid ones, and refusals of hostile ones."""

import json

import pytest
import torch
from safetensors.torch import save_file

from backend.catalog.policies.weight_files import MAX_HEADER_BYTES, UnreadableWeights, Weight, read_weights


def write(directory, header, name="model.safetensors", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    (directory / name).write_bytes(size.to_bytes(8, "little") + text)


def test_names_and_shapes_of_several_files(tmp_path):
    save_file({"a.weight": torch.zeros(3, 4)}, tmp_path / "model-1.safetensors", {"format": "pt"})
    save_file({"layers.7.b": torch.zeros(5, dtype=torch.bfloat16)}, tmp_path / "model-2.safetensors")
    shapes = {weight.name: weight.shape for weight in read_weights(tmp_path)}
    assert shapes == {"a.weight": (3, 4), "layers.7.b": (5,)}


def test_a_changed_file_is_read_again(tmp_path):
    write(tmp_path, {"a": {"dtype": "F32", "shape": [2]}})
    assert read_weights(tmp_path)[0].shape == (2,)
    write(tmp_path, {"a": {"dtype": "F32", "shape": [2, 30]}})
    assert read_weights(tmp_path)[0].values == 60


def test_the_layer_of_a_weight():
    assert Weight("model.layers.12.mlp.up_proj.weight", (1,)).layer == 12
    assert Weight("model.layers.999999999.up_proj.weight", (1,)).layer is None
    assert Weight("lm_head.weight", (1,)).module_name == "lm_head"


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (b"", None),
        (b"{}", 2**63),
        (b"{}", MAX_HEADER_BYTES + 1),
        (b"[]", None),
        (b"{" * 100, None),
        (b'{"a":' * 200_000, None),
        (b"\xff\xfe{}", None),
        ({"a": 1}, None),
        ({"a": {"dtype": "F32"}}, None),
        ({"a": {"dtype": "F32", "shape": [-1]}}, None),
        ({"a": {"dtype": "F32", "shape": [True]}}, None),
        ({"a": {"dtype": "F32", "shape": [1.5]}}, None),
        ({"a": {"dtype": "F32", "shape": [1] * 9}}, None),
        ({"a": {"dtype": "F32", "shape": [10**9, 10**9]}}, None),
        ({"a": {"dtype": "U8", "shape": [4]}}, None),
        ({"a": {"dtype": ["F32"], "shape": [4]}}, None),
        ({f"a{n}": {"dtype": "F32", "shape": [10**13]} for n in range(11)}, None),
    ],
)
def test_a_hostile_header_is_refused(tmp_path, header, length):
    write(tmp_path, header, length=length)
    with pytest.raises(UnreadableWeights):
        read_weights(tmp_path)


def test_a_directory_without_weights_is_refused(tmp_path):
    with pytest.raises(UnreadableWeights, match="0 weight files"):
        read_weights(tmp_path)
