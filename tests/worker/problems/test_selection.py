"""Tests of row selection: duplicates, overlap with held-out questions, pass rates and difficulty."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.base.errors import InvalidConfig
from backend.catalog.datasets.overlap import find_overlapping
from backend.catalog.datasets.similarity import near_duplicates
from backend.catalog.datasets.words import normalise
from backend.config.data import DataConfig
from backend.config.pass_rates import PassRates, text_key
from backend.config.run import RunConfig
from backend.rollouts.pass_rates import store_rates
from tests.worker.problems.test_problems import SOURCES_ADAPTER, write_rows
from worker.problems.mixture import Mixture, build_mixture

LONG_QUESTION = (
    "Natalia sold clips to 48 of her friends in April and then she sold half as many clips in May."
)


def mixture(tmp_path, rows: list[dict[str, Any]], data: DataConfig, *, order: str = "sequential") -> Mixture:
    write_rows(tmp_path / "rows.jsonl", rows)
    problems = SOURCES_ADAPTER.validate_python([{"name": "file", "path": "rows.jsonl"}])
    return build_mixture(problems, seed=0, order=order, datasets_dir=tmp_path, hf_online=False, data=data)


def row(prompt: str, split: str = "train", **columns: Any) -> dict[str, Any]:
    return {"prompt": prompt, "answer": "1", "split": split, **columns}


def trained_prompts(source: Mixture, count: int) -> list[str]:
    return [prompt.text for prompt in source.prompts(0, count)]


HELD_OUT_ROW = row("something else entirely", "test")


def test_a_row_overlaps_by_thirteen_consecutive_words_but_not_by_twelve():
    words = [f"w{n}" for n in range(20)]
    held_out = [" ".join(words)]
    thirteen, twelve = " ".join(["x", *words[3:16], "y"]), " ".join(["x", *words[3:15], "y"])
    assert find_overlapping([thirteen, twelve, "x y"], held_out, 13) == {0}
    assert find_overlapping([thirteen, twelve], held_out, 12) == {0, 1}


def test_rows_that_overlap_are_reported_or_dropped(tmp_path):
    rows = [row("a", id="one"), row(f"Once more: {LONG_QUESTION}", id="two"), row(LONG_QUESTION, "test")]
    selected_mixture = mixture(tmp_path, rows, DataConfig(contamination="report"))
    [selection] = selected_mixture.selections
    assert (selection.contaminated, selection.examples, len(set(trained_prompts(selected_mixture, 4)))) == (
        1,
        ["file:rows.jsonl/two"],
        2,
    )
    selected_mixture = mixture(tmp_path, rows, DataConfig(contamination="drop"))
    assert set(trained_prompts(selected_mixture, 4)) == {"a"}
    assert selected_mixture.selections[0].sentence.endswith("1 overlap with held-out questions (left out)")


def test_near_duplicate_rows_are_reported_or_dropped(tmp_path):
    story = "Anna has 12 apples and gives 5 of them to Ben before lunch . How many apples are left for Anna ?"
    rows = [
        row(story, id="first"),
        row(story.replace("before lunch", "after lunch"), id="second"),  # 3 of 20 shingles differ: 17 / 23
        row(story.replace("12", "14"), id="third"),  # another problem
        row("What is the capital of the country where the river Seine flows into the sea ?", id="fourth"),
        row("What is the capital of the country where the river Seine flows into the ocean ?", "test"),
    ]
    selected_mixture = mixture(tmp_path, rows, DataConfig(near_duplicates="report"))
    [selection] = selected_mixture.selections
    assert (selection.near, selection.near_held_out) == (1, 1)
    assert selection.twins[0] == "file:rows.jsonl/second is 74% like file:rows.jsonl/first"
    assert selection.twins[1].startswith('file:rows.jsonl/fourth is 75% like the held-out question "What is')
    selected_mixture = mixture(tmp_path, rows, DataConfig(near_duplicates="drop"))
    assert set(trained_prompts(selected_mixture, 4)) == {story, story.replace("12", "14")}
    assert (
        "1 are near duplicates of another row (left out), 1 are near duplicates of a held-out"
        in selected_mixture.selections[0].sentence
    )


def split_shingles(text):
    words = normalise(text).split()
    return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))}


@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12).map(" ".join), max_size=14),
    st.integers(0, 3),
    st.sampled_from([0.5, 0.7, 0.9, 1.0]),
)
def test_the_index_finds_the_same_as_comparing_all_pairs(texts, count, limit):
    held_out, questions = texts[:count], texts[count:]
    kept_runs, expected = [split_shingles(text) for text in held_out], {}
    for number, text in enumerate(questions):
        runs = split_shingles(text)
        best = max(
            (len(runs & kept_shingles) / len(runs | kept_shingles) for kept_shingles in kept_runs), default=0
        )
        if best >= limit:
            expected[number] = best
        else:
            kept_runs.append(runs)
    duplicates = near_duplicates(questions, held_out, limit)
    assert {duplicate.number: duplicate.similarity for duplicate in duplicates} == pytest.approx(expected)


def test_a_held_out_question_of_one_source_counts_for_all_sources(tmp_path):
    write_rows(tmp_path / "train.jsonl", [row("a"), row(f"Q: {LONG_QUESTION}"), HELD_OUT_ROW])
    write_rows(tmp_path / "eval.jsonl", [row("b"), row(LONG_QUESTION, "test")])
    problems = SOURCES_ADAPTER.validate_python(
        [{"name": "file", "path": f"{name}.jsonl"} for name in ("train", "eval")]
    )
    selected_mixture = build_mixture(
        problems,
        seed=0,
        order="sequential",
        datasets_dir=tmp_path,
        hf_online=False,
        data=DataConfig(contamination="drop"),
    )
    assert [selection.contaminated for selection in selected_mixture.selections] == [1, 0]
    assert set(trained_prompts(selected_mixture, 10)) == {"a", "b"}


def test_rows_outside_the_pass_rate_limits_do_not_train(tmp_path):
    rates = [0.0, 0.1, "0.5", 0.9, 1.0, None]
    rows = [row(f"q{n}", rate=rate) for n, rate in enumerate(rates)] + [HELD_OUT_ROW | {"rate": 0.5}]
    selected_mixture = mixture(
        tmp_path, rows, DataConfig(pass_rate_field="rate", min_pass_rate=0.1, max_pass_rate=0.9)
    )
    assert trained_prompts(selected_mixture, 3) == ["q1", "q2", "q3"]
    assert selected_mixture.selections[0].out_of_range == 3


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (DataConfig(pass_rate_field="rate"), "field 'rate': expected a pass rate from 0 to 1, got 7"),
        (DataConfig(pass_rate_field="gone"), "field 'gone' is missing"),
        (DataConfig(pass_rate_field="low", min_pass_rate=0.5), "has no row left for training: "),
        (DataConfig(difficulty_field="gone", curriculum="easy_first"), "field 'gone' is missing"),
    ],
)
def test_a_selection_that_leaves_no_row_is_refused_with_its_source(tmp_path, data, reason):
    rows = [row("a", rate=7, low=0.1), row("b", rate=7, low=0), HELD_OUT_ROW]
    with pytest.raises(InvalidConfig) as error_info:
        mixture(tmp_path, rows, data)
    [error] = error_info.value.errors
    assert error.path == "problems.0.path"
    assert reason in error.message


def test_a_curriculum_goes_from_easy_to_hard_in_every_epoch(tmp_path):
    levels = ["Level 3", "Level 1", "Level 2", None, "Level 1"]
    rows = [row(f"q{n}", level=level) for n, level in enumerate(levels)] + [HELD_OUT_ROW | {"level": "x"}]
    data_config = DataConfig(curriculum="easy_first", difficulty_field="level")
    assert trained_prompts(mixture(tmp_path, rows, data_config), 5) == ["q1", "q4", "q2", "q0", "q3"]
    shuffled = trained_prompts(mixture(tmp_path, rows, data_config, order="shuffled"), 50)
    passes = [shuffled[start : start + 5] for start in range(0, 50, 5)]
    assert all(texts[2:] == ["q2", "q0", "q3"] for texts in passes)
    assert {tuple(texts[:2]) for texts in passes} == {("q1", "q4"), ("q4", "q1")}


def stored_rates(tmp_path, **rates: float) -> str:
    rates_of_run = PassRates(
        run="r",
        run_name="first",
        last_step=9,
        by_id={f"file:rows.jsonl/{name}": rate for name, rate in rates.items()},
        by_text={text_key("q3"): 0.4},
    )
    return store_rates(rates_of_run, tmp_path).sha256


def test_rows_are_selected_and_ordered_by_the_pass_rates_of_an_earlier_run(tmp_path):
    rows = [row(f"q{n}", id=f"row{n}") for n in range(5)] + [HELD_OUT_ROW]
    pass_rates_name = stored_rates(tmp_path, row0=0.0, row1=0.3, row2=0.8)
    selected_mixture = mixture(
        tmp_path, rows, DataConfig(pass_rates=pass_rates_name, curriculum="easy_first")
    )
    assert trained_prompts(selected_mixture, 5) == ["q2", "q3", "q1", "q0", "q4"]
    assert selected_mixture.selections[0].sentence.endswith(
        "of 5 training rows 4 have a pass rate of 'first'"
    )
    selected_mixture = mixture(
        tmp_path, rows, DataConfig(pass_rates=pass_rates_name, min_pass_rate=0.1, max_pass_rate=0.5)
    )
    assert set(trained_prompts(selected_mixture, 4)) == {"q1", "q3"}
    assert selected_mixture.selections[0].out_of_range == 3


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"min_pass_rate": 0.5}, "pass_rate_field"),
        ({"pass_rate_field": "x", "min_pass_rate": 0.5, "max_pass_rate": 0.2}, "max_pass_rate"),
        ({"curriculum": "easy_first"}, "difficulty_field"),
        ({"pass_rate_field": "x", "pass_rates": "a" * 64}, "pass_rates"),
    ],
)
def test_a_selection_without_its_column_is_refused(fields, path):
    with pytest.raises(ValueError, match=f"{path}: is "):
        RunConfig(data=DataConfig(**fields))
