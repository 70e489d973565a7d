"""Tests of the validation of responses from sampling servers."""

import copy

import pytest

from worker.rollout.engine_client import BadResponse
from worker.rollout.sampler import Decoding
from worker.rollout.server_answers import OtherWeights, read_completions

PROMPT = [4, 5, 6]


@pytest.fixture
def answer(tiny):
    """A valid response with one finished and one truncated completion."""
    plain_ids = [index for index in range(4, 20) if index not in tiny.stop_ids]
    ended_ids, truncated_ids = [*plain_ids[:2], tiny.stop_ids[0]], plain_ids[:4]
    choices = [
        {
            "index": index,
            "token_ids": ids,
            "prompt_token_ids": PROMPT,
            "finish_reason": reason,
            "logprobs": {"token_logprobs": [-0.5] * len(ids)},
        }
        for index, (ids, reason) in enumerate([(ended_ids, "stop"), (truncated_ids, "length")])
    ]
    return {"model": "served", "choices": choices[::-1]}


def read(answer, tiny):
    decoding = Decoding(4)
    return read_completions(answer, tiny, PROMPT, model="served", count=2, sampling=decoding, version=9)


def test_completions_are_returned_in_order_with_their_reported_numbers(answer, tiny):
    ended_completion, truncated_completion = read(answer, tiny)
    assert (ended_completion.finish_reason, truncated_completion.finish_reason) == ("stop", "length")
    assert (len(ended_completion), len(truncated_completion)) == (3, 4)
    assert ended_completion.sampler_logprobs.tolist() == [-0.5] * 3
    assert (ended_completion.version, ended_completion.prompt_tokens) == (9, 3)
    assert ended_completion.text == tiny.tokenizer.decode(ended_completion.ids[:-1])


def change_choice(choice, **changes):
    choice.update(changes)


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (lambda a, _: a.pop("choices"), "has no choices"),
        (lambda a, _: a["choices"].pop(), "has 1 completions, 2 were asked for"),
        (lambda a, _: change_choice(a["choices"][0], index=0), "has 2 completions, 2 were asked for"),
        (lambda a, _: change_choice(a["choices"][0], token_ids=None), "return_token_ids needs vLLM 0.10.2"),
        (
            lambda a, _: change_choice(a["choices"][0], token_ids=[4, 5, 6, 10**7]),
            "the policy's vocabulary of",
        ),
        (
            lambda a, _: change_choice(a["choices"][0], token_ids=[4, 5, 6, True]),
            "the policy's vocabulary of",
        ),
        (lambda a, _: change_choice(a["choices"][0], token_ids=[4] * 5), "has 5 tokens, at most 4"),
        (
            lambda a, _: change_choice(a["choices"][0], token_ids=[4] * 3),
            "not one log-probability for each token",
        ),
        (
            lambda a, _: change_choice(a["choices"][0], logprobs=None),
            "not one log-probability for each token",
        ),
        (
            lambda a, _: change_choice(a["choices"][0], logprobs={"token_logprobs": [0.5] * 4}),
            "log-probabilities that are none",
        ),
        (
            lambda a, _: change_choice(a["choices"][0], logprobs={"token_logprobs": [float("nan")] * 4}),
            "log-probabilities that are none",
        ),
        *(
            (
                lambda a, _, value=value: change_choice(
                    a["choices"][0], logprobs={"token_logprobs": [value] * 4}
                ),
                "log-probabilities that are none",
            )
            for value in (-1e300, float("-inf"), -(10**400), 10**400)
        ),
        (lambda a, _: change_choice(a["choices"][0], prompt_token_ids=[4]), "other tokens than the prompt's"),
        (lambda a, _: change_choice(a["choices"][0], finish_reason="abort"), "was ended by 'abort'"),
        (lambda a, _: change_choice(a["choices"][0], finish_reason="stop"), "--generation-config vllm"),
        (lambda a, stop: change_choice(a["choices"][0], token_ids=[4, stop, 4, 4]), "context is too short"),
        (lambda a, _: change_choice(a["choices"][1], finish_reason="length"), "context is too short"),
    ],
)
def test_an_invalid_response_is_refused(answer, tiny, change, phrase):
    invalid_answer = copy.deepcopy(answer)
    change(invalid_answer, tiny.stop_ids[0])
    with pytest.raises(BadResponse, match=phrase):
        read(invalid_answer, tiny)


def test_a_response_with_another_model_name_has_other_weights(answer, tiny):
    with pytest.raises(OtherWeights):
        read(answer | {"model": "another"}, tiny)
