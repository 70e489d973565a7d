"""Tests of micro-batches by completions and tokens, and of their halving when memory runs out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.config.resources import ResourcesConfig
from worker.policy.microbatches import Microbatches
from worker.policy.token_batch import microbatches, token_batch


def make_batch(lengths, prompt=2):
    return token_batch([[5] * prompt] * len(lengths), [[7] * length for length in lengths], pad_id=0)


def shapes(row_sets, tokens):
    return [(len(rows), int((tokens.lengths + tokens.prompt_lengths)[rows].max())) for rows in row_sets]


def test_tokens_include_prompt_and_padding():
    tokens = make_batch([8, 2, 2, 18, 3])  # rows of 10, 4, 4, 20 and 5 tokens
    assert [rows.tolist() for rows in microbatches(tokens, max_tokens=15)] == [[1, 2, 4], [0], [3]]
    assert [rows.tolist() for rows in microbatches(tokens, max_tokens=20)] == [[1, 2, 4], [0], [3]]
    assert [rows.tolist() for rows in microbatches(tokens, max_tokens=40)] == [[1, 2, 4, 0], [3]]
    assert [rows.tolist() for rows in microbatches(tokens, max_tokens=1)] == [[1], [2], [4], [0], [3]]
    assert [rows.tolist() for rows in microbatches(tokens, max_tokens=15, max_rows=2)] == [
        [1, 2],
        [4],
        [0],
        [3],
    ]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(0, 200),
    st.integers(0, 8),
)
def test_every_completion_is_in_one_microbatch_and_only_a_single_one_exceeds_the_limit(lengths, limit, rows):
    tokens = make_batch(lengths)
    row_sets = microbatches(tokens, max_rows=rows, max_tokens=limit)
    assert sorted(torch.cat(row_sets).tolist()) == list(range(len(lengths)))
    for count, width in shapes(row_sets, tokens):
        assert count == 1 or not limit or count * width <= limit
        assert not rows or count <= rows


def fail_above(count):
    tried_sizes = []

    def compute(row_sets):
        tried_sizes.append([len(rows) for rows in row_sets])
        if max(map(len, row_sets)) > count:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return "done"

    return compute, tried_sizes


def test_work_is_repeated_with_half_the_tokens_until_it_fits():
    passes, undo_calls = Microbatches(ResourcesConfig()), []
    compute, tried_sizes = fail_above(2)
    assert passes.run(make_batch([8] * 8), compute, lambda: undo_calls.append(1)) == "done"
    assert tried_sizes == [[8], [4, 4], [2, 2, 2, 2]]
    assert (passes.tokens, passes.halvings, len(undo_calls)) == (20, 2, 2)
    assert passes.run(make_batch([8] * 4), compute) == "done"  # the limit stays halved
    assert tried_sizes[-1] == [2, 2]


def test_a_single_completion_that_does_not_fit_is_an_error():
    passes = Microbatches(ResourcesConfig())
    compute, tried_sizes = fail_above(0)
    with pytest.raises(RuntimeError, match="out of memory"):
        passes.run(make_batch([8, 8, 30]), compute)
    assert tried_sizes[-1] == [1, 1, 1]
