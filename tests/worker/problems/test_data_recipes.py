"""Tests of recipes for known datasets, read from small files in their exact format and layout."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.config.data_recipes import DATA_RECIPES
from backend.config.problems import HubProblem
from tests.gate import first_in_gate
from worker.problems.hub import load_folders
from worker.problems.mixture import build_mixture

BOX_INSTRUCTION = "\nPut the final answer inside \\boxed{}."


def recipe(name: str) -> HubProblem:
    [source] = DATA_RECIPES[name].problems
    assert isinstance(source, HubProblem)
    return source


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_gsm8k_recipe(tmp_path):
    rows = [
        {"question": f"Natalia sold {n} clips. How many?", "answer": f"She sold <<{n}+0={n}>>{n}.\n#### {n}"}
        for n in range(72, 80)
    ]
    write(tmp_path / "main" / "train-00000-of-00001.parquet", rows[:6])
    write(tmp_path / "main" / "test-00000-of-00001.parquet", rows[6:])
    problem = load_folders(recipe("gsm8k"), tmp_path, tmp_path, seed=0, shuffled=False)
    first = problem.sample(0, "train")
    assert (first.text, first.answer) == ("Natalia sold 72 clips. How many?" + BOX_INSTRUCTION, "72")
    assert {problem.sample(n, "eval").answer for n in range(2)} == {"78", "79"}


def test_the_math_recipe_holds_out_math_500(tmp_path):
    def row(n: int, **columns: Any) -> dict[str, Any]:
        solution = f"We get $x = \\frac{{{n}}}{{3}}$, so $x$ is $\\boxed{{\\frac{{{n}}}{{3}}}}$."
        return {"problem": f"Solve $3x = {n}$.", "level": "Level 2", "solution": solution, **columns}

    train, held_out = tmp_path / "MATH", tmp_path / "MATH-500"
    write(train / "data" / "train-00000-of-00001.parquet", [row(n, type="Algebra") for n in range(1, 5)])
    write(train / "data" / "test-00000-of-00001.parquet", [row(9, type="Algebra")])
    write(
        held_out / "test.jsonl", [row(7, answer="\\frac{7}{3}", subject="Algebra", unique_id="test/a/7.json")]
    )
    problem = load_folders(recipe("math"), train, held_out, seed=0, shuffled=False)
    first = problem.sample(0, "train")
    assert (first.text, first.answer) == ("Solve $3x = 1$." + BOX_INSTRUCTION, "\\frac{1}{3}")
    assert first.columns == {"level": "Level 2", "type": "Algebra"}
    assert problem.sample(0, "eval").text == "Solve $3x = 7$." + BOX_INSTRUCTION
    assert {problem.sample(n, "train").answer for n in range(8)} == {
        f"\\frac{{{n}}}{{3}}" for n in range(1, 5)
    }


def test_dapo_math_17k_recipe(tmp_path):
    rows = [
        {
            "prompt": f"Find {n}.",
            "solution": str(n),
            "data_source": "math_dapo",
            "source_prompt": [{"content": f"Solve ... Find {n}.", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": str(n), "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"id-{n}"},
        }
        for n in range(20)
    ]
    write(tmp_path / "en" / "train-00000-of-00001.parquet", rows)
    problem = load_folders(recipe("dapo_math_17k"), tmp_path, None, seed=0, shuffled=False)
    first = problem.sample(0, "train")
    assert first.text == f"Find {first.answer}." + BOX_INSTRUCTION
    assert first.columns["reward_model"]["ground_truth"] == first.answer
    assert len({problem.sample(n, "eval").text for n in range(20)}) == 2


def test_the_parquet_branch_of_the_hub_is_read_in_its_layout(tmp_path):
    rows = [{"question": f"q{n}", "answer": f"#### {n}"} for n in range(5)]
    write(tmp_path / "main" / "train" / "0000.parquet", rows)
    write(tmp_path / "main" / "test" / "0000.parquet", [{"question": "held out", "answer": "#### 1"}])
    problem = load_folders(recipe("gsm8k"), tmp_path, tmp_path, seed=0, shuffled=False)
    assert problem.sample(0, "eval").text == "held out" + BOX_INSTRUCTION


@pytest.mark.parametrize("name", first_in_gate(1, ["countdown", "reasoning_mixture"]))
def test_generated_recipes_give_prompts(name, tmp_path):
    sources = DATA_RECIPES[name].problems
    mixture = build_mixture(sources, seed=0, order="shuffled", datasets_dir=tmp_path, hf_online=False)
    try:
        assert len({prompt.problem for prompt in mixture.prompts(0, 2 * len(sources))}) == len(sources)
    finally:
        mixture.close()
