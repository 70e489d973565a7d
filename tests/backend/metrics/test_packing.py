"""Tests that packed texts and tokens are restored exactly."""

import contextlib
import itertools
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from backend.base.text import clean_text, find_unstorable
from backend.rollouts.packing import (
    PackedDamaged,
    Tokens,
    pack_text,
    pack_tokens,
    unpack_arrays,
    unpack_text,
    unpack_tokens,
)
from backend.rollouts.token_values import value_kind, value_width
from backend.storage.completion_codec import MAX_TEXT_BYTES

ANY_TEXTS = st.text(st.characters(codec=None, categories=None) | st.sampled_from("\0\ud800\udfff"))


@given(ANY_TEXTS)
def test_every_text_is_restored(text):
    assert unpack_text(pack_text(text)) == text


@given(ANY_TEXTS)
def test_a_clean_text_is_utf8_without_nul(text):
    assert b"\0" not in clean_text(text).encode()


@given(st.lists(st.lists(ANY_TEXTS, max_size=5), max_size=4))
def test_every_group_of_tokens_is_restored(completions):
    groups = [
        Tokens(
            strings, np.arange(len(strings), dtype=np.int32), {"logprob": np.full(len(strings), -0.5, "f4")}
        )
        for strings in completions
    ]
    unpacked_groups = unpack_tokens(pack_tokens(groups))
    assert [tokens.strings for tokens in unpacked_groups] == completions
    for original_tokens, restored_tokens in zip(groups, unpacked_groups, strict=True):
        assert np.array_equal(original_tokens.ids, restored_tokens.ids)
        assert np.array_equal(original_tokens.arrays["logprob"], restored_tokens.arrays["logprob"])


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"a": [1, "x\0"]}, "a.1"),
        ({"a": {"\ud800": 1}}, "a.\ud800"),
        ({"lr": float("nan")}, "lr"),
        ([float("inf")], "0"),
    ],
)
def test_text_that_no_database_accepts_is_reported_with_its_path(document, path):
    problem = find_unstorable(document)
    assert problem is not None
    assert problem[0] == path


FLOATS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=300)


@given(FLOATS)
def test_terms_of_a_sum_keep_their_total_and_other_values_keep_sixteen_bits(values):
    rounded_values = np.array(values, np.float32)
    arrays = {"loss": rounded_values, "kl": rounded_values, "logprob": rounded_values}
    [unpacked_tokens] = unpack_tokens(
        pack_tokens([Tokens(["x"] * len(values), np.arange(len(values), dtype=np.int32), arrays)])
    )
    largest = float(np.abs(rounded_values).max())
    exact_values = rounded_values.astype(np.float64)
    assert (
        abs(unpacked_tokens.arrays["loss"].sum(dtype=np.float64) - exact_values.sum())
        <= 2**-22 * largest + 1e-30
    )
    assert np.abs(unpacked_tokens.arrays["loss"] - exact_values).max() <= 2**-21 * largest + 1e-30
    assert np.allclose(unpacked_tokens.arrays["kl"], rounded_values, rtol=2**-16, atol=1e-40)
    assert np.array_equal(unpacked_tokens.arrays["logprob"], rounded_values)


def test_nonfinite_values_are_restored():
    nonfinite_values = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    [unpacked_tokens] = unpack_tokens(
        pack_tokens(
            [
                Tokens(
                    ["x"] * 4,
                    np.arange(4, dtype=np.int32),
                    {"loss": nonfinite_values, "kl": nonfinite_values},
                )
            ]
        )
    )
    for name in ("loss", "kl"):
        assert np.array_equal(unpacked_tokens.arrays[name], nonfinite_values, equal_nan=True)


def test_alternatives_keep_exact_ids_and_take_six_bytes_each():
    ids = np.array([0, 7, 151_936, 2**24 - 1], np.float32)
    logprobs = np.array([-0.1, -3.7, -12.5, -np.inf], np.float32)
    arrays = {"alternative_0_id": ids, "alternative_0_logprob": logprobs}
    for name in arrays:
        assert value_width(value_kind(name)) == 3
    [unpacked_tokens] = unpack_tokens(pack_tokens([Tokens(["x"] * 4, np.arange(4, dtype=np.int32), arrays)]))
    assert np.array_equal(unpacked_tokens.arrays["alternative_0_id"], ids)
    assert np.allclose(unpacked_tokens.arrays["alternative_0_logprob"][:3], logprobs[:3], rtol=8e-6)
    assert unpacked_tokens.arrays["alternative_0_logprob"][3] == -np.inf


def test_a_text_that_unpacks_beyond_the_limit_is_refused_before_unpacking():
    bomb = zstandard.compress(bytes(MAX_TEXT_BYTES + 1))
    tracemalloc.start()
    with pytest.raises(PackedDamaged, match=r"declares 67108865 bytes, expected at most 67108864"):
        unpack_text(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("data", [b"", b"\x28\xb5\x2f\xfdbroken", zstandard.compress(b"\xff\0\0\0[")])
def test_invalid_packed_tokens_are_reported_as_damage(data):
    for unpack in (unpack_tokens, unpack_arrays):
        with pytest.raises(PackedDamaged):
            unpack(data)


def test_any_flipped_bit_is_detected():
    text = pack_text("What is 1+1? " * 5)
    tokens = pack_tokens([Tokens(["a", "b"], np.array([1, 2]), {"logprob": np.array([-0.5, -0.25])})] * 3)
    for packed_bytes, unpack in ((text, unpack_text), (tokens, unpack_tokens)):
        unpacked_text = str(unpack(packed_bytes))
        for offset, bit in itertools.product(range(len(packed_bytes)), range(8)):
            flipped = bytearray(packed_bytes)
            flipped[offset] ^= 1 << bit
            with contextlib.suppress(PackedDamaged):
                assert str(unpack(bytes(flipped))) == unpacked_text
