"""Tests of the check that prompts fit the context before a run is queued."""

import json

import pytest

from backend.base.errors import InvalidConfig
from backend.catalog.policies.prompt_lengths import count_tiny_tokens
from backend.runs.checks import resolve_runnable

VOCABULARY = {"Ġthe": 0, "cat": 1, "Ċ": 2, "}ĊĊ": 3, "ĠĠĠĠ": 4, "<|im_start|>": 5}


@pytest.fixture
def model(settings):
    """A policy in MODELS_DIR with a context of 512 tokens."""
    directory = settings.models_dir / "mine"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"model_type": "qwen3", "max_position_embeddings": 512}')
    (directory / "model.safetensors").write_bytes(b"")
    write_vocabulary(directory, VOCABULARY)
    return directory


def write_vocabulary(directory, vocabulary):
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary}, "added_tokens": [{"content": "<|end|>"}]}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))


def write_rows(settings, *prompts):
    settings.datasets_dir.mkdir(exist_ok=True)
    rows = [json.dumps({"prompt": prompt, "answer": "2"}) for prompt in ("1+1=?", "", "2+0=?", *prompts)]
    rows[1] = ""
    (settings.datasets_dir / "rows.jsonl").write_text("\n".join(rows))


def find_error(settings, problem, *, policy="tiny", room=100, context=1024):
    config = {
        "policy": {"name": policy, "dtype": "float32"},
        "problems": [problem],
        "sampling": {"max_new_tokens": context - room},
    }
    with pytest.raises(InvalidConfig) as error_info:
        resolve_runnable(settings, config)
    (error,) = error_info.value.errors
    return error


FILE_PROBLEM = {"name": "file", "path": "rows.jsonl"}


def test_a_row_too_long_for_the_built_in_policy_is_named_with_its_line_and_length(settings):
    write_rows(settings, "a" * 101, "b" * 100)
    error = find_error(settings, FILE_PROBLEM)
    assert error.path == "problems.0.path"
    assert error.message == (
        f"rows.jsonl: line 4: the prompt '{'a' * 37}...' has 101 tokens; "
        "expected at most 100 (context 1024 less max_new_tokens 924)"
    )


def test_the_instruction_counts_and_a_prompt_that_just_fits_is_accepted(settings):
    write_rows(settings, "a" * 97)
    limits = {"sampling": {"max_new_tokens": 924}}
    assert resolve_runnable(settings, limits | {"problems": [FILE_PROBLEM | {"instruction": "go"}]})
    assert "has 101 tokens" in find_error(settings, FILE_PROBLEM | {"instruction": "goo"}, room=100).message


def test_a_sum_too_long_is_refused_at_its_operands(settings):
    error = find_error(settings, {"name": "sums", "operands": 3}, room=9)
    assert error.path == "problems.0.operands"
    assert error.message.startswith("the prompt '99+99+99=?' has 10 tokens; expected at most 9")


@pytest.mark.parametrize("vocabulary", [{"ofĠthe": 0}, {"▁by.▁the": 0}, {}])
def test_a_vocabulary_whose_tokens_span_words_is_not_checked_before_the_run(settings, model, vocabulary):
    write_vocabulary(model, vocabulary)
    write_rows(settings, "the cat " * 100)
    limits = {"policy": {"name": "mine", "chat_template": False}, "sampling": {"max_new_tokens": 412}}
    assert resolve_runnable(settings, limits | {"problems": [FILE_PROBLEM]})


def test_prompts_of_the_built_in_policy_are_counted_by_its_tokenizer(settings):
    from worker.warm_start.tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    for text in ("85+60=?", "<think>a</think>\n", "<eos><pad> <unk>", "é漢字😀\t", "< think >", ""):
        assert count_tiny_tokens(text) == len(tokenizer.encode(text)), text
