"""Size and content of the step records that wait for the database."""

import numpy as np

from worker.prompt import Prompt
from worker.recording.recorder import _size
from worker.rewards.score import Scorer
from worker.training.step_records import evaluation_records
from worker.types import Completion, Group


def group_of(lengths: list[int]) -> Group:
    """Its completions' values lie in arrays of the whole batch, as the sampler makes them."""
    shape = len(lengths), max(lengths)
    ids, logprobs, entropies = (
        np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
    )
    completions = tuple(
        Completion(
            ids=ids[row, :length],
            text="x" * length,
            token_strings=("x",) * length,
            finish_reason="stop",
            sampler_logprobs=logprobs[row, :length],
            entropies=entropies[row, :length],
        )
        for row, length in enumerate(lengths)
    )
    prompt = Prompt(id="p", text="1+1", answer="2", problem="sums", domain="math", index=0)
    rewards_of_one = (1.0,) * len(lengths)
    return Group(prompt, completions, rewards=rewards_of_one, terms={}, correctness=rewards_of_one)


def test_the_size_of_a_step_counts_arrays_as_wide_as_its_longest_completion() -> None:
    records = evaluation_records([group_of([10, 30])], Scorer(()))
    alive = {
        id(array.base): array.base.nbytes
        for completion in records[0].completions
        for array in (np.asarray(completion.token_ids), *completion.arrays.values())
        if array.base is not None
    }
    assert sum(alive.values()) == (8 + 2 * 4) * 2 * 30
    assert _size(records) == 4_000 + 100 * (10 + 30) + sum(alive.values())
