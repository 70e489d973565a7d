"""A step of an ordinary run, as a trainer hands it to the recorder, without the training."""

import numpy as np

from worker.recording.records import CompletionRecord, GroupRecord, StepRecord

PROMPTS, COMPLETIONS, TOKENS = 16, 8, 40


def recorded_step(number: int) -> StepRecord:
    """Sixty metrics and 16 x 8 completions of 40 tokens with two values each, drawn by the step's number."""
    chance = np.random.default_rng(number)
    metrics = {f"reward/metric{key}": float(chance.random()) for key in range(60)}
    return StepRecord(number, metrics, [_group(place, chance) for place in range(PROMPTS)])


def _group(place: int, chance: np.random.Generator) -> GroupRecord:
    texts = [" ".join(map(str, chance.integers(0, 99, TOKENS))) for _ in range(COMPLETIONS)]
    completions = [
        CompletionRecord(
            text=text,
            token_strings=text.split(" "),
            token_ids=np.arange(TOKENS),
            reward=1.0,
            rewards={"correctness": 1.0},
            advantage=0.5,
            finish_reason="stop",
            correct=True,
            arrays={
                "logprob": chance.random(TOKENS, np.float32),
                "entropy": chance.random(TOKENS, np.float32),
            },
        )
        for text in texts
    ]
    return GroupRecord("train", place, f"sums/{place}", "sums", "", "1+1=?", "2", completions)
