import re
from typing import Any

import pytest

from backend.config.sums import is_held_out
from worker.problems.sums import Sums
from worker.warm_start.__main__ import Recipe, demonstrations
from worker.warm_start.solutions import Carelessness, imperfect_solution, without_carries
from worker.warm_start.tokenizer import build_tokenizer


def operands(text):
    return tuple(int(number) for number in re.findall(r"\d+", text))


def test_a_prompt_is_a_sum_and_its_answer():
    prompt = Sums(seed=0).sample(0, "train")
    numbers = operands(prompt.text)
    assert prompt.text == "+".join(map(str, numbers)) + "=?"
    assert len(numbers) == 3
    assert all(10 <= number <= 99 for number in numbers)
    assert prompt.answer == str(sum(numbers))
    assert (prompt.problem, prompt.domain, prompt.index) == ("sums", "math", 0)


def test_the_same_seed_split_and_index_give_the_same_prompt():
    assert Sums(seed=3).sample(17, "train") == Sums(seed=3).sample(17, "train")


def test_another_seed_trains_on_other_prompts_but_is_evaluated_on_the_same():
    first, second = Sums(seed=0), Sums(seed=1)
    assert [first.sample(i, "train").text for i in range(8)] != [
        second.sample(i, "train").text for i in range(8)
    ]
    assert [first.sample(i, "eval") for i in range(8)] == [second.sample(i, "eval") for i in range(8)]


def test_no_held_out_sum_is_ever_trained_on_in_any_order_of_its_operands():
    small: dict[str, Any] = {"operands": 3, "low": 1, "high": 12}  # 364 sums: every one of them turns up
    trained = {
        tuple(sorted(operands(Sums(seed=seed, **small).sample(i, "train").text)))
        for seed in range(3)
        for i in range(2000)
    }
    held_out = {tuple(sorted(operands(Sums(seed=0, **small).sample(i, "eval").text))) for i in range(2000)}
    assert len(trained | held_out) == 364
    assert not trained & held_out


def test_the_split_is_a_property_of_the_operands_alone():
    assert is_held_out((11, 22, 37)) == is_held_out((37, 11, 22))
    for index in range(200):
        assert is_held_out(operands(Sums(seed=5).sample(index, "eval").text))
        assert not is_held_out(operands(Sums(seed=5).sample(index, "train").text))


def test_the_warm_start_sees_no_held_out_sum():
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


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [(85, 60, 145), (85, 88, 163), (145, 88, 123), (5, 7, 12), (99, 1, 90), (10, 20, 30)],
)
def test_a_forgotten_carry_is_lost_unless_it_opens_a_new_column(left, right, total):
    assert without_carries(left, right) == total


def test_a_careful_pupil_is_right():
    from random import Random

    careful = Carelessness(forgets_carries=0, wrong_digit=0, untagged=0, unboxed=0)
    assert (
        imperfect_solution([85, 60, 88], Random(0), careful)
        == "<think>85+60=145,145+88=233</think>\\boxed{233}"
    )
