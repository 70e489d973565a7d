"""What of a step waits for the database, and how much of it."""

import numpy as np
from numpy.typing import NDArray

from worker.recorder import _size
from worker.recording import evaluation_records
from worker.rewards.score import Scorer
from worker.rollout.types import Completion, Group, Prompt


def padded(length: int) -> NDArray[np.float32]:
    """A row's first values, of an array that is 1,000 wide."""
    return np.zeros((64, 1000), np.float32)[0, :length]


def group_of(length: int) -> Group:
    completion = Completion(
        ids=np.zeros((64, 1000), np.int64)[0, :length],
        text="x" * length,
        token_strings=("x",) * length,
        finish_reason="stop",
        sampler_logprobs=padded(length),
        entropies=padded(length),
    )
    prompt = Prompt(id="p", text="1+1", answer="2", problem="sums", domain="math", index=0)
    return Group(prompt, (completion,), rewards=(1.0,), terms={}, correctness=(1.0,))


def test_a_waiting_record_keeps_no_padded_array_alive() -> None:
    (record,) = evaluation_records([group_of(10)], Scorer(()))
    (completion,) = record.completions
    arrays = [completion.token_ids, *completion.arrays.values()]
    assert [getattr(array, "base", None) for array in arrays] == [None] * 3
    assert completion.arrays["logprob"].shape == (10,)


def test_the_size_of_a_step_counts_every_token_with_its_values() -> None:
    records = evaluation_records([group_of(10), group_of(30)], Scorer(()))
    assert _size(records) == 4_000 + (100 + 2 * 4) * 40
