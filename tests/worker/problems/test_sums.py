import re
from typing import Any

import pytest

from backend.config.sums import is_held_out
from worker.problems.sums import Sums
from worker.warm_start.__main__ import Recipe, demonstrations
from worker.warm_start.tokenizer import build_tokenizer


def operands(text):
    return tuple(int(number) for number in re.findall(r"\d+", text))


def test_a_prompt_is_a_sum_with_its_answer():
    prompt = Sums(seed=0).sample(0, "train")
    numbers = operands(prompt.text)
    assert prompt.text == "+".join(map(str, numbers)) + "=?"
    assert len(numbers) == 3
    assert all(10 <= number <= 99 for number in numbers)
    assert prompt.answer == str(sum(numbers))
    assert (prompt.problem, prompt.domain, prompt.index) == ("sums", "math", 0)


def test_another_seed_trains_on_other_prompts_but_is_evaluated_on_the_same():
    first, second = Sums(seed=0), Sums(seed=1)
    assert [first.sample(i, "train").text for i in range(8)] != [
        second.sample(i, "train").text for i in range(8)
    ]
    assert [first.sample(i, "eval") for i in range(8)] == [second.sample(i, "eval") for i in range(8)]


def test_no_held_out_sum_is_trained_in_any_order_of_its_operands():
    small_sums: dict[str, Any] = {"operands": 3, "low": 1, "high": 12}  # 364 sums, all of which occur
    trained_operands = {
        tuple(sorted(operands(Sums(seed=seed, **small_sums).sample(i, "train").text)))
        for seed in range(3)
        for i in range(2000)
    }
    held_out = {
        tuple(sorted(operands(Sums(seed=0, **small_sums).sample(i, "eval").text))) for i in range(2000)
    }
    assert len(trained_operands | held_out) == 364
    assert not trained_operands & held_out


def test_the_warm_start_contains_no_held_out_sum():
    tokenizer = build_tokenizer()
    ids, _ = demonstrations(Recipe(batch_size=300), tokenizer, step=0)
    prompts = [tokenizer.decode(row).split("=?")[0] for row in ids]
    assert not any(is_held_out(operands(prompt)) for prompt in prompts)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"operands": 1}, "operands must be between 2 and 8, got 1"),
        ({"low": 50, "high": 50}, "expected 0 <= low < high <= 999999, got low 50 and high 50"),
        ({"operands": 2, "low": 1, "high": 9}, "make 45 different sums, expected at least 200"),
    ],
)
def test_a_space_without_room_for_held_out_sums_is_refused(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Sums(seed=0, **params)
