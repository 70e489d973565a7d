"""Tests of CSV and JSONL logs: guessed columns, metric names, and what is ignored and why."""

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.base.errors import InvalidRequest
from backend.exchange.imports.formats import read_logs
from backend.exchange.imports.plan import plan_import
from backend.exchange.imports.table import BadLog


def plan_content(content, **choices):
    """Return the import plan of a log with this content."""
    content = content if isinstance(content, bytes) else content.encode()
    return plan_import(read_logs(io.BytesIO(content))[1][0], **choices)


def points(plan, metric):
    """Return {step: value} of a metric."""
    series = plan.series[metric]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def curve_table(**columns):
    """Return a CSV with these columns and one step per row."""
    rows = zip(*columns.values(), strict=True)
    lines = [["step", *columns], *([step, *row] for step, row in enumerate(rows, 1))]
    return "\n".join(",".join(map(str, line)) for line in lines) + "\n"


def decisions(plan):
    """Return {column: (state, name or reason)}."""
    return {column.column: (column.state, column.metric or column.reason) for column in plan.decisions}


def test_names_of_other_trainers_are_mapped_and_unknown_ones_stay():
    plan = plan_content("step,reward,rewards/format fn/mean,my metric\n1,0.5,1,7\n2,0.75,0,8\n")
    assert points(plan, "reward/mean") == {1: 0.5, 2: 0.75}
    assert decisions(plan) == {
        "reward": ("renamed", "reward/mean"),
        "rewards/format fn/mean": ("renamed", "reward/format_fn/mean"),
        "my metric": ("renamed", "my_metric"),
    }


def test_a_mapped_name_that_would_be_too_long_is_not_used_and_the_original_is_cut():
    term, long_term = "a" * 150, "b" * 115
    plan = plan_content(
        f"step,rewards/{term}/mean,rewards/{term}/std,rewards/{long_term}/mean\n1,0.5,0.1,0.25\n"
    )
    names = decisions(plan)
    cut_name, spread_name = (names[f"rewards/{term}/{kind}"][1] for kind in ("mean", "std"))
    assert cut_name[:119] == spread_name[:119] == f"rewards/{term}"[:119]
    assert (len(cut_name), len(spread_name), points(plan, spread_name)) == (128, 128, {1: 0.1})
    assert names[f"rewards/{long_term}/mean"] == ("renamed", f"reward/{long_term}/mean")
    assert plan.decisions[0].reason == "a name has at most 128 characters"
    assert points(plan, cut_name) == {1: 0.5}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_and_a_byte_order_mark_are_recognised(delimiter):
    text = delimiter.join(["step", "loss"]) + "\n" + delimiter.join(["3", "0.5"]) + "\n"
    assert points(plan_content(b"\xef\xbb\xbf" + text.encode()), "loss/total") == {3: 0.5}


@pytest.mark.parametrize(
    ("header", "row", "step"),
    [
        ("epoch,global_step,step,loss", "0.5,40,4,1", "global_step"),
        ("_step,train/global_step,loss", "4,40,1", "train/global_step"),
        ("Step,loss", "4,1", "Step"),
        ("iteration,loss", "4,1", "iteration"),
    ],
)
def test_the_step_column_is_guessed_by_name(header, row, step):
    assert plan_content(f"{header}\n{row}\n").step == step


def test_a_column_called_step_with_fractions_does_not_count_steps():
    plan = plan_content("step,batch,loss\n0.1,10,3\n0.2,20,2\n0.3,30,1\n")
    assert plan.step == "batch"


def test_the_unnamed_index_column_of_pandas_is_ignored():
    plan = plan_content(",step,loss\n0,1,0.5\n1,2,0.25\n2,3,0.5\n")
    assert decisions(plan) == {"": ("dropped", "has no name"), "loss": ("renamed", "loss/total")}
    assert points(plan_content(",loss\n0,0.5\n1,0.25\n2,0.5\n"), "loss/total") == {1: 0.5, 2: 0.25, 3: 0.5}


def test_a_rising_metric_does_not_count_steps():
    assert plan_content("loss,num_tokens\n1,100\n2,200\n3,300\n").step == ""


def test_without_a_step_column_rows_are_counted_from_one():
    plan = plan_content("loss,reward\n3.5,1\n2.5,1\n1.5,0\n")
    assert plan.step == ""
    assert points(plan, "loss/total") == {1: 3.5, 2: 2.5, 3: 1.5}


def test_a_user_can_override_the_step_column_and_the_names():
    text = "step,other,reward,x\n1,10,0.5,1\n2,20,0.6,2\n"
    plan = plan_content(text, step="other", mapping={"reward": "mine/reward", "x": ""})
    assert points(plan, "mine/reward") == {10: 0.5, 20: 0.6}
    assert decisions(plan)["x"] == ("dropped", "left out by you")
    assert points(plan_content(text, step=""), "reward/mean") == {1: 0.5, 2: 0.6}


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"step": "none"}, "step: there is no column 'none'"),
        ({"mapping": {"none": "a"}}, "mapping: there is no column 'none'"),
        ({"mapping": {"reward": "a b"}}, "letters, digits and"),
        ({"mapping": {"reward": "a", "kl": "a"}}, "two columns are to be called 'a'"),
    ],
)
def test_a_wrong_choice_is_refused_in_one_sentence(choices, reason):
    with pytest.raises(InvalidRequest, match=reason):
        plan_content("step,reward,kl\n1,2,3\n", **choices)


def test_nan_and_infinities_are_values_and_empty_cells_are_none():
    plan = plan_content("step,a,b\n1,nan,\n2,Infinity,1\n3,-inf,null\n")
    assert [math.isnan(value) for value in points(plan, "a").values()] == [True, False, False]
    assert list(points(plan, "a").values())[1:] == [math.inf, -math.inf]
    assert points(plan, "b") == {2: 1.0}
    jsonl = '{"step": 1, "a": NaN}\n{"step": 2, "a": "Infinity"}\n{"step": 3, "a": null}\n'
    assert str(points(plan_content(jsonl), "a")) == "{1: nan, 2: inf}"


def test_values_after_a_restart_replace_earlier_ones_and_duplicates_are_averaged():
    plan = plan_content("step,loss\n1,1\n2,2\n3,3\n2,20\n3,30\n3,32\n4,4\n5,5\n")
    assert points(plan, "loss/total") == {1: 1, 2: 20, 3: 31, 4: 4, 5: 5}
    assert [tuple(restart) for restart in plan.restarts] == [(5, 3, 2)]
    assert (plan.replaced, plan.merged) == (2, 2)
    assert plan.log.metadata.notes == [
        "2 values share their step with others of their column: the mean counts."
    ]


def test_values_of_interleaved_ranks_are_averaged():
    rows = "".join(f"{step},{rank}\n" for step in range(1, 9) for rank in (0, 1))
    swapped = "".join(f"{step + delay},{delay}\n" for step in range(1, 9) for delay in (1, 0))
    for text in (rows, swapped):
        assert points(plan_content("step,loss\n" + text), "loss/total")[4] == 0.5


def test_bad_rows_and_cells_are_named_by_line():
    plan = plan_content("step,loss\n1,0.5\n2\n,0.5\n-4,0.5\n2.5,1\n3,oops\n4,0.25\n")
    assert points(plan, "loss/total") == {1: 0.5, 4: 0.25}
    bad_lines = plan.log.table.bad
    assert bad_lines.count == 5
    assert {bad_line.line: bad_line.reason.split(",")[0] for bad_line in bad_lines.first} == {
        3: "has 1 cells",
        4: "has no step in 'step': expected a whole number",
        5: "has no step in 'step': expected a whole number",
        6: "has no step in 'step': expected a whole number",
        7: "'loss' is 'oops'",
    }


def test_twenty_bad_lines_are_named_and_all_are_counted():
    plan = plan_content('{"step": 1, "a": 1}\n' + "nonsense\n" * 500)
    assert (len(plan.log.table.bad.first), plan.log.table.bad.count) == (20, 500)
    assert plan.log.table.bad.first[0].line == 2


def test_columns_of_text_times_and_additional_counters_are_ignored():
    rows = "".join(f"{n},{n},model-{n},{1.7e9 + n},{n}\n" for n in range(1, 5))
    plan = plan_content(f"global_step,_step,phase,_timestamp,loss\n{rows}")
    assert decisions(plan) == {
        "_step": ("dropped", "counts steps; they are taken from global_step"),
        "phase": ("dropped", "holds no numbers, but 'model-1'"),
        "_timestamp": ("dropped", "is the time of day; the run's start and end are taken from it"),
        "loss": ("renamed", "loss/total"),
    }
    facts = plan.log.metadata
    assert (facts.started_at, facts.finished_at) == (1.7e9 + 1, 1.7e9 + 4)


WANDB_CHART = "Step,base - train/reward,base - train/reward__MIN,base - train/reward__MAX{more}\n"


def test_a_wandb_chart_of_one_run_is_read():
    plan = plan_content(WANDB_CHART.format(more="") + '"10","0.5","0.5","0.5"\n"20","0.75","0.75","0.75"\n')
    assert points(plan, "reward/mean") == {10: 0.5, 20: 0.75}
    assert (plan.log.origin, plan.log.metadata.name, list(plan.series)) == ("wandb", "base", ["reward/mean"])


def test_each_run_of_a_chart_becomes_a_run():
    further_columns = ",new - train/reward,new - train/reward__MIN,new - train/reward__MAX"
    logs = read_logs(
        io.BytesIO((WANDB_CHART.format(more=further_columns) + "10,0.5,0.5,0.5,1,1,1\n").encode())
    )[1]
    assert {log.metadata.name: points(plan_import(log), "reward/mean") for log in logs} == {
        "base": {10: 0.5},
        "new": {10: 1.0},
    }


def test_a_column_called_step_with_words_does_not_count_steps():
    assert plan_content("step,loss\na,1\nb,2\nc,0\n").step == ""


def test_a_name_chosen_by_the_user_takes_precedence_over_a_guess():
    plan = plan_content("step,reward,score\n1,1,2\n", mapping={"score": "reward/mean"})
    assert decisions(plan) == {"reward": ("taken", "reward"), "score": ("renamed", "reward/mean")}


def test_two_columns_never_share_a_name():
    plan = plan_content("step,reward,train/reward,reward/mean\n1,1,2,3\n")
    assert decisions(plan) == {
        "reward": ("renamed", "reward/mean"),
        "train/reward": ("taken", "train/reward"),
        "reward/mean": ("dropped", "another column is already called reward/mean"),
    }


def test_nested_objects_and_a_list_of_objects_are_read():
    rows = [{"step": n, "train": {"reward": n / 2, "deep": {"kl": 1}}, "tags": ["a"]} for n in (1, 2)]
    for text in ("\n".join(map(json.dumps, rows)), json.dumps(rows, indent=1)):
        plan = plan_content(text)
        assert points(plan, "reward/mean") == {1: 0.5, 2: 1.0}
        assert points(plan, "train/deep/kl") == {1: 1, 2: 1}


VALID_SPELLINGS = {
    "UTF-16, as PowerShell writes it": "step,eval_acc\n5,0.25\n10,0.5\n".encode("utf-16"),
    "Latin-1, as Excel writes it": "step;eval_acc;Länge\n5;0,25;3\n10;0,5;4\n".encode("latin-1"),
    "decimal commas": b"step;eval_acc\n5;0,25\n10;0,5\n",
    "steps of all, percent": b"Step,Test accuracy (%)\n5/400,25%\n10/400,50 %\n",
    "thousands of steps": b"step,eval_acc\n0.005k,0.25\n0.01k,0.5\n",
    "a row without metrics": b"_step,step,eval_acc,_runtime\n1,5,0.25,9\n2,,,10\n3,10,0.5,11\n",
    "names in an object": (
        b'{"step": 5, "metrics": {"eval": {"acc": 0.25}}}\n{"step": 10, "metrics": {"eval": {"acc": 0.5}}}\n'
    ),
    "checkpoints": b"checkpoint,eval_acc\ncheckpoint-5,0.25\ncheckpoint-10,0.5\n",
    "columns of pandas": b'{"step": {"0": 5, "1": 10}, "eval_acc": {"0": 0.25, "1": 0.5}}',
    "pandas, split": b'{"columns": ["step", "eval_acc"], "index": [0, 1], "data": [[5, 0.25], [10, 0.5]]}',
    "objects over several lines": b'{\n "step": 5, "eval_acc": 0.25\n}\n{\n "step": 10, "eval_acc": 0.5\n}\n',
    "a list that is cut off": b'[\n {"step": 5, "eval_acc": 0.25},\n {"step": 10, "eval_acc": 0.5},\n {"st',
    "a state of TRL that is cut off": (
        b'{"epoch": 1,\n"log_history": [{\n"eval_acc": 0.25,\n"step": 5},\n{"eval_acc": 0.5, "step": 10}, {'
    ),
    "spaces": b"# step eval_acc\n5 0.25\n10 0.5\n",
    "a grid": b"+----+----+\n|step|eval_acc|\n+====+====+\n|5|0.25|\n+----+----+\n|10|0.5|\n+----+----+\n",
    "a table of rich": "┏━━━┳━━━┓\n┃ step ┃ eval_acc ┃\n┡━━━╇━━━┩\n│ 5 │ 0.25 │\n│ 10 │ 0.5 │\n".encode(),
    "times of each value": b"step,eval_acc,eval_acc_timestamp\n5,0.25,1.5\n10,0.5,2.5\n",
}


@pytest.mark.parametrize("content", VALID_SPELLINGS.values(), ids=VALID_SPELLINGS)
def test_common_spellings_of_numbers_are_read(content):
    plan = plan_content(content)
    assert points(plan, "eval/accuracy") == {5: 0.25, 10: 0.5}
    assert (plan.log.table.bad.count, "eval_acc_timestamp" in plan.series) == (0, False)


HOSTILE_CONTENTS = {
    "is empty": [b"", b"  \n\n"],
    "is not UTF-8 text: line 2": ["step,loss,é\n".encode() + b"1,\xff,2\n"],
    "is cut off: its packed content does not end": [b"\x1f\x8b\x08\x00rest"],
    "is damaged: Parquet file size is": [b"PAR1\x15\x04"],
    "is damaged: File is not a zip file": [b"PK\x03\x04"],
    "is a binary file of an unknown kind": [b"\x00\x01\x02" * 100, b"step,loss\n1,\x00\n"],
    "has no metrics: no line such as": [b"hello there\n", b"{'a': __import__('os').getcwd()}\n" * 9],
    "is an HTML page without a table": [b"<html></html>"],
    "has two columns of the name 'a'": [b"a,a\n1,2\n"],
    "has no header": [b"1,2\n3,4\n"],
    "has no rows": [b"step,loss\n", b"[]", b'[1, "x"]', b'"text",\n'],
    "has no metric": [b"step,name\n1,x\n", b'{"step": 1, "a": [1]}\n'],
    "has a line of more than": [b"step,loss\n1," + b"9" * 5_000_000],
    "has more than 2,000 columns": [json.dumps({f"c{n}": n for n in range(3000)}).encode()],
    "has a column whose name has": [b'{"' + b"n" * 600 + b'": 1}\n'],
    "is not complete JSON": [b"{\n", b'[{"step": 1, "a": 1},', b"[" * 100_000],
    "is not CSV": [b'step,loss\n1,"2\n3,4\n'],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "content"),
    [(reason, content) for reason, contents in HOSTILE_CONTENTS.items() for content in contents],
)
def test_a_file_that_is_not_a_log_gets_one_sentence(reason, content):
    with pytest.raises(BadLog, match=f"^{reason}"):
        plan_content(content)


@pytest.mark.parametrize(
    "row",
    [
        '{"step": 1e400, "a": 1}',
        '{"step": 99999999999999999999, "a": 1}',
        '{"step": true, "a": 1' + "0" * 5000 + "}",
    ],
)
def test_absurd_numbers_are_not_steps(row):
    plan = plan_content(f'{row}\n{{"step": 2, "a": 5}}\n{{"step": 3, "a": 6}}\n')
    assert points(plan, "a") == {2: 5, 3: 6} | (
        {1: math.inf} if "true" in row and 1 in points(plan, "a") else {}
    )


SEED_LOGS = [
    b"step,reward,note\n1,0.5,a\n2,nan,b\n3,,c\n",
    b'{"step": 1, "reward": 0.5, "x": {"y": [1]}}\n{"step": 2, "reward": NaN}\n',
    b'{"log_history": [{"step": 1, "loss": 1.5}], "max_steps": 4, "global_step": 1}',
    b'{"step": 1, "data": {"actor/entropy": 0.5}}\n{"step": 2, "data": {}}\n',
    b"(pid=7) step:1 - actor/entropy:0.5 - a/b:np.float64(1.5)\nnoise\n",
    b"Step,a - x,a - x__MIN,a - x__MAX\n1,2,2,2\n",
]
byte_edits = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.integers(0, 6),
        st.sampled_from([b"", b"\n", b",", b'"', b"{", b"}", b"1e999", b"-", b"null", b"\xc3\xa9"]),
    ),
    max_size=5,
)


@given(st.sampled_from(SEED_LOGS), byte_edits)
def test_a_damaged_log_is_read_or_refused_in_one_sentence(content, edits):
    for offset, length, text in edits:
        content = content[:offset] + text + content[offset + length :]
    try:
        plan = plan_content(content)
    except BadLog:
        return
    assert plan.points > 0
    assert all((series.steps[1:] > series.steps[:-1]).all() for series in plan.series.values())


values = st.floats(width=64) | st.none()
logs = st.dictionaries(
    st.integers(0, 2**31 - 2),
    st.dictionaries(st.sampled_from(["reward/mean", "a", "b/c", "x@1"]), values, min_size=1),
    min_size=1,
    max_size=30,
)


def stored_values(log):
    """Return {metric: {step: value}}, as expected after the round trip."""
    values_by_name = {}
    for step in sorted(log):
        for name, metric_value in log[step].items():
            if metric_value is not None:
                values_by_name.setdefault(name, {})[step] = metric_value
    return values_by_name


def check_round_trip(log, content):
    expected = stored_values(log)
    if not expected:
        with pytest.raises(BadLog):
            plan_content(content)
        return
    plan = plan_content(content)
    assert {name: repr(points(plan, name)) for name in plan.series} == {
        name: repr(series_points) for name, series_points in expected.items()
    }
    assert plan.log.table.bad.count == 0


@given(logs)
def test_jsonl_keeps_every_value(log):
    check_round_trip(log, "".join(json.dumps({"step": step, **row}) + "\n" for step, row in log.items()))


@given(logs)
def test_csv_keeps_every_value(log):
    names = ["reward/mean", "a", "b/c", "x@1"]
    lines = [",".join(["step", *names])]
    for step, row in log.items():
        cells = [row.get(name) for name in names]
        lines.append(",".join([str(step), *("" if cell is None else repr(cell) for cell in cells)]))
    check_round_trip(log, "\n".join(lines) + "\n")


RISING_VALUES = [step / 40 for step in range(20)]
LEARNING_RATES = [1e-6 * (20 - step) for step in range(20)]


def suggestions(**columns):
    plan = plan_content(curve_table(**columns))
    # suggestions are not applied automatically
    assert all(column.metric == column.column for column in plan.decisions)
    return {column.column: column.suggestion for column in plan.decisions if column.suggestion}


def test_values_of_a_column_with_an_unknown_name_suggest_its_metric():
    assert suggestions(hits=RISING_VALUES, rate=LEARNING_RATES, noise=[1, 3] * 10) == {
        "hits": "reward/accuracy",
        "rate": "optim/lr",
    }
    assert suggestions(rate=[5e-6] * 20) == {"rate": "optim/lr"}


@pytest.mark.parametrize(
    "values",
    [
        [2 * rising for rising in RISING_VALUES[::-1]],  # falls
        [3 * rising for rising in RISING_VALUES],  # beyond 1
        [1e-3, 2e-3] * 10,  # tiny and noisy
        [0.5] * 20,
        [0.0] * 20,
        ["nan", *RISING_VALUES[1:]],
    ],
)
def test_unusual_values_suggest_nothing(values):
    assert suggestions(x=values) == {}


def test_similar_columns_or_an_existing_metric_suggest_nothing():
    assert suggestions(one=RISING_VALUES, two=RISING_VALUES) == {}
    plan = plan_content(
        curve_table(accuracy=RISING_VALUES, hits=RISING_VALUES).replace("accuracy", "reward/accuracy")
    )
    assert [column.suggestion for column in plan.decisions] == ["", ""]


def test_a_suggestion_is_applied_only_through_the_mapping():
    plan = plan_content(curve_table(hits=RISING_VALUES), mapping={"hits": "reward/accuracy"})
    assert (list(plan.series), plan.decisions[0].suggestion) == (["reward/accuracy"], "")


def test_a_document_with_too_many_values_is_refused_before_parsing(monkeypatch):
    monkeypatch.setattr("backend.exchange.imports.lines.parse", lambda _: pytest.fail("it was parsed"))
    monkeypatch.setattr("backend.exchange.imports.lines.MAX_DOCUMENT_VALUES", 1_000)
    content = b'{"log_history": [\n' + b"[]," * 1_000 + b"[]]}"
    with pytest.raises(BadLog, match="one JSON document of more than 1,000 values"):
        read_logs(io.BytesIO(content), format_name="trl")


def test_a_list_of_rows_deep_in_a_document_is_read():
    rows = [{"iteration": step, "reward_mean": step / 10} for step in (1, 2, 3)]
    document = {"lora": {"r": 8}, "training": {"best_reward": 0.3, "log": rows}}
    plan = plan_content(json.dumps(document, indent=1))
    assert points(plan, "reward/mean") == {1: 0.1, 2: 0.2, 3: 0.3}


@pytest.mark.parametrize("document", [
    {"history": [{"step": 1, "reward": 0.5}] * 2, "final": {"samples": [{"reward": 0.9}] * 9}},
    {"optimizer": {"groups": [{"lr": 0.1}, {"lr": 0.1}]}, "step": [1, 2], "reward": [0.5, 0.5]},
])  # fmt: skip
def test_lists_within_objects_do_not_replace_the_metrics_of_a_document(document):
    assert set(points(plan_content(json.dumps(document, indent=1)), "reward/mean").values()) == {0.5}


def test_a_document_with_several_inner_lists_is_refused():
    rows = [{"step": 1, "reward": 0.5}]
    with pytest.raises(BadLog, match="several lists of metrics \\('runs/a', 'runs/b'\\)"):
        plan_content(json.dumps({"runs": {"a": rows, "b": rows}}, indent=1))


SPLIT_ROWS = [("train", 0.5), ("val", 0.25), ("train", 0.75), ("val", 0.5)]


@pytest.mark.parametrize("form", ["csv", "capital csv", "jsonl", "rising counter"])
def test_rows_of_a_validation_split_are_evaluations(form):
    counter = "tokens_seen" if form == "rising counter" else "step"
    if form == "jsonl":
        rows = [{"step": n // 2, "split": split, "accuracy": a} for n, (split, a) in enumerate(SPLIT_ROWS, 2)]
        text = "\n".join(map(json.dumps, rows))
    else:
        head = f"{counter}, {'Split' if form == 'capital csv' else 'split'}, accuracy, val_loss"
        steps = range(1, 5) if form == "rising counter" else (1, 1, 2, 2)
        lines = [f"{step}, {split}, {a}, 1" for step, (split, a) in zip(steps, SPLIT_ROWS, strict=True)]
        text = "\n".join([head, *lines])
    plan = plan_content(text + "\n")
    assert plan.step == counter
    assert list(points(plan, "reward/accuracy").values()) == [0.5, 0.75]
    assert list(points(plan, "eval/accuracy").values()) == [0.25, 0.5]
    assert not any("eval/val" in column.metric for column in plan.decisions)


def test_an_evaluation_between_irregular_steps_of_the_training_is_one():
    lines = [json.dumps({"step": step, "reward": 0.5}) for step in (1, 2, 5, 6, 20)]
    lines.insert(4, json.dumps({"step": 7, "split": "eval", "accuracy": 0.25}))
    plan = plan_content("\n".join(lines))
    assert points(plan, "eval/accuracy") == {7: 0.25}


@pytest.mark.parametrize(("name", "values"), [
    ("split", ["test", "test"]), ("stage", ["2", "3"]), ("mode", ["test-time", "test-time"]),
])  # fmt: skip
def test_rows_of_one_split_stay_as_they_are(name, values):
    text = "".join(f"{step},{value},0.5\n" for step, value in enumerate(values, 1))
    assert points(plan_content(f"step,{name},reward\n{text}"), "reward/mean") == {1: 0.5, 2: 0.5}
