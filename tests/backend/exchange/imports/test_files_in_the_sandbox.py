"""Tests of the import of Parquet files, databases and archives, both genuine and hostile."""

import gzip
import io
import json
import math
import os
import sqlite3
import struct
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest

from backend.exchange.imports.archive import _gunzip, _inflate
from backend.exchange.imports.databases import read_database
from backend.exchange.imports.formats import FORMATS, detect, read_logs
from backend.exchange.imports.log_file import ImportSandbox, LogFile
from backend.exchange.imports.parquet_operations import _open
from backend.exchange.imports.plan import plan_import
from backend.exchange.imports.table import BadLog
from backend.exchange.imports.text_formats import read_csv

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LOGS = Path(__file__).parent / "logs"


def parse_logs(content, name="log"):
    return read_logs(io.BytesIO(content), name)[1]


def plans_by_name(content):
    """Return {name of the run: its plan}."""
    return {log.metadata.name: plan_import(log) for log in parse_logs(content)}


def points(plan, metric):
    series = plan.series[metric]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def make_parquet(columns, **options):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def make_zip(files, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def make_tar(files, mode="w"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def database(*statements):
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    return connection.serialize()


METRICS_TABLE = (
    "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
)


def row(run, step, cells):
    return f"INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES ('2026-01-01T00:00:00+00:00', '{run}', {step}, '{json.dumps(cells)}')"  # noqa: S608 E501


# ---------------------------------------------------------------- genuine files


@pytest.mark.parametrize(
    ("name", "kind"),
    [("completions.parquet", "parquet"), ("trackio.parquet", "parquet"), ("trackio.db", "sqlite")],
)
def test_the_type_of_a_file_is_recognised_by_its_content(name, kind):
    assert detect(io.BytesIO((LOGS / name).read_bytes())) == kind


def test_trackio_matches_the_state_that_trl_saved():
    [state] = plans_by_name((LOGS / "trainer_state.json").read_bytes()).values()
    from_database = plans_by_name((LOGS / "trackio.db").read_bytes())
    from_export = plans_by_name((LOGS / "trackio.parquet").read_bytes())
    assert list(from_database) == list(from_export) == ["tiny-digits", "by hand"]
    for metric in ("reward/mean", "kl/k3", "length/mean"):
        values = list(points(state, metric).values())
        assert list(points(from_database["tiny-digits"], metric).values()) == pytest.approx(values), metric
        assert list(points(from_export["tiny-digits"], metric).values()) == pytest.approx(values), metric
    for logs in (from_database, from_export):
        by_hand = points(logs["by hand"], "reward/mean")
        assert (by_hand[0], by_hand[1], by_hand[3]) == (0.25, 0.5, math.inf)
        assert math.isnan(by_hand[2])
    facts = from_database["tiny-digits"].log.metadata
    assert (facts.seed, facts.config["learning_rate"], from_database["by hand"].log.metadata.seed) == (
        11,
        1e-3,
        12,
    )
    assert from_database["tiny-digits"].log.origin == from_export["by hand"].log.origin == "trackio"


def test_completions_of_trl_are_the_same_from_its_file_and_from_trackio():
    [file_log] = parse_logs((LOGS / "completions.parquet").read_bytes())
    logged_samples = parse_logs((LOGS / "trackio.db").read_bytes())[0].completions.samples
    assert file_log.completions.samples == logged_samples[-8:]
    [(step, groups)] = file_log.completions.steps()
    assert (step, [len(group.completions) for group in groups]) == (12, [4, 4])
    first = groups[0].completions[0]
    assert (first.reward, dict(first.rewards)) == (1.0, {"digits": 1.0})
    assert points(plan_import(file_log), "reward/digits/mean").keys() == {12}


# ---------------------------------------------------------------- Parquet


def test_completions_in_parquet_may_be_structs_or_lists():
    columns = {
        "prompt": [[{"role": "user", "content": "1+1="}]] * 2,
        "response": ["2", "3"],
        "reward": [1.0, 0.0],
        "ground_truth": [{"solution": "2", "names": ["a"]}] * 2,
        "solution": [["2"], ["2"]],
    }
    [log] = parse_logs(make_parquet(columns), "rollout_step_7.parquet")
    assert [(sample.step, sample.completion, sample.reward) for sample in log.completions.samples] == [
        (7, "2", 1.0),
        (7, "3", 0.0),
    ]
    assert log.completions.samples[0].answer == "{'solution': '2', 'names': ['a']}"


def test_numbers_of_every_kind_are_read_from_parquet_in_several_row_groups():
    columns = {
        "step": pa.array(range(10), pa.uint8()),
        "half": pa.array([n / 2 for n in range(10)], pa.float16()),
        "truth": pa.array([True, None] * 5),
        "decimal": pa.array(range(10)).cast(pa.decimal128(30, 2)),
        "odd": pa.array([math.nan, math.inf, None, *range(7)], pa.float64()),
        "<b>": pa.array(["=1+1"] * 10),
        "list": pa.array([[1]] * 10),
    }
    [log] = parse_logs(make_parquet(columns, row_group_size=3))
    plan = plan_import(log)
    assert points(plan, "half") == {n: n / 2 for n in range(10)}
    assert points(plan, "truth") == dict.fromkeys(range(0, 10, 2), 1.0)
    assert points(plan, "decimal") == {n: float(n) for n in range(10)}
    assert (
        repr(points(plan, "odd"))
        == "{0: nan, 1: inf, 3: 0.0, 4: 1.0, 5: 2.0, 6: 3.0, 7: 4.0, 8: 5.0, 9: 6.0}"
    )
    reasons = {column.column: column.reason for column in plan.decisions if column.state == "dropped"}
    assert reasons == {"<b>": "holds no numbers, but '=1+1'", "list": "holds no numbers, but '[1]'"}


def test_a_hundred_thousand_values_of_parquet_arrive_in_order():
    steps = list(range(50_000))
    [log] = parse_logs(make_parquet({"step": steps, "loss": [float(n) for n in steps]}, row_group_size=7_001))
    series = plan_import(log).series["loss/total"]
    assert (series.steps == series.values).all()
    assert len(series.steps) == 50_000


def test_completions_over_the_limit_are_counted_and_not_read(monkeypatch):
    operations, original_ask = [], ImportSandbox.run_operation

    def asking(self, operation, **request):
        operations.append(operation)
        return original_ask(self, operation, **request)

    monkeypatch.setattr(ImportSandbox, "run_operation", asking)
    monkeypatch.setattr("backend.exchange.imports.completions.MAX_COMPLETIONS", 10)
    texts = {"prompt": ["p"] * 500, "completion": ["x" * 5_000] * 500}
    [log] = parse_logs(make_parquet({"step": [0] * 500, **texts}))
    assert (len(log.completions), log.completions.beyond) == (10, 490)
    assert operations == ["parquet-schema", "parquet-rows"]


def test_a_text_that_parquet_repeats_is_decoded_once(tmp_path):
    columns = {"step": [0] * 1_000, "completion": ["x" * 100_000] * 1_000, "nested": [["x"]] * 1_000}
    (tmp_path / "log").write_bytes(make_parquet(columns))
    types = _open({"path": str(tmp_path / "log")}).schema_arrow
    assert pa.types.is_dictionary(types.field("completion").type)
    assert not pa.types.is_dictionary(types.field("nested").type)


def test_runs_of_a_parquet_file_are_separated_by_name_and_seed():
    columns = {
        "run": ["a", "a", "b", "b"],
        "seed": [0, 1, 0, 0],
        "step": [1, 1, 1, 2],
        "reward": [1.0, 2.0, 3.0, 4.0],
    }
    logs = parse_logs(make_parquet(columns))
    assert [(log.metadata.name, log.metadata.variant, log.metadata.seed) for log in logs] == [
        ("a seed 0", "a", 0),
        ("a seed 1", "a", 1),
        ("b", None, 0),
    ]
    assert points(plan_import(logs[2]), "reward/mean") == {1: 3.0, 2: 4.0}


VALID_PARQUET = make_parquet({"step": list(range(1_000)), "loss": [0.5] * 1_000})


@pytest.mark.parametrize(
    "content",
    [
        VALID_PARQUET[:-1],
        VALID_PARQUET[: len(VALID_PARQUET) // 2],
        b"PAR1" + b"\xff" * 100 + b"PAR1",
        VALID_PARQUET[:-8] + b"\xff\xff\xff\x7fPAR1",
        VALID_PARQUET[:100] + b"\0" * 200 + VALID_PARQUET[300:],
    ],
    ids=["end", "half", "footer", "length", "pages"],
)
def test_a_damaged_parquet_file_gets_one_sentence(content):
    with pytest.raises(BadLog, match=r"^(is damaged|cannot be read)"):
        parse_logs(content)


def test_a_parquet_file_of_too_many_rows_is_refused_before_it_is_read():
    with pytest.raises(BadLog, match="has 3,000,000 rows; at most 2,000,000 are imported"):
        parse_logs(make_parquet({"step": pa.array([0] * 3_000_000, pa.int8())}))


# ---------------------------------------------------------------- SQLite


def test_an_older_database_of_trackio_without_run_ids_is_read():
    content = database(METRICS_TABLE, row("a", 1, {"reward": 1, "x": {"y": 2}}), row("b", 1, {"reward": 3}))
    logs = plans_by_name(content)
    assert points(logs["a"], "reward/mean") == {1: 1.0}
    assert points(logs["a"], "x/y") == {1: 2.0}
    assert points(logs["b"], "reward/mean") == {1: 3.0}


@pytest.mark.parametrize(("texts", "characters"), [(60, 30_000), (300, 10_000), (2, 99_999)])
def test_a_table_of_trackio_with_long_completions_is_read_in_pieces(texts, characters):
    script = "\u4e2d" if texts == 2 else "y"  # six bytes each when escaped
    statements = [METRICS_TABLE]
    for step in (1, 2):
        rows = [
            {"step": step, "prompt": script * 9, "completion": f"{n}{script * characters}"}
            for n in range(texts)
        ]
        table = {"_type": "trackio.table", "_value": rows}
        statements.append(row("r", step, {"reward": step / 2, "completions": table}))
    [log] = parse_logs(database(*statements))
    plan = plan_import(log)
    assert points(plan, "reward/mean") == {1: 0.5, 2: 1.0}
    group_sizes = [
        (step, len(group.completions)) for step, groups in log.completions.steps() for group in groups
    ]
    assert sum(count for _, count in group_sizes) == 2 * texts
    assert {step for step, _ in group_sizes} == {1, 2}


MLFLOW_TABLES = (
    "CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT, lifecycle_stage TEXT)",
    "CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT)",
    "CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step INT, is_nan INT)",
)


def mlflow_run(run, status, rewards, stage="active"):
    """Return statements that add a run with rewards, NaN as None, and a metric of the machine."""
    yield f"INSERT INTO runs VALUES ('{run}', 'name of {run}', '{status}', '{stage}')"  # noqa: S608
    for step, reward in enumerate(rewards):
        value = (reward or 0.0, 1_795_980_448_500 + 1000 * step, run, step, reward is None)
        yield f"INSERT INTO metrics VALUES ('reward', {', '.join(map(repr, value))})"  # noqa: S608
        yield f"INSERT INTO metrics VALUES ('system/cpu', 9.0, 5, '{run}', {step + 100}, 0)"  # noqa: S608


def test_runs_of_an_mlflow_database_have_values_config_and_failure():
    params = [("learning_rate", "1e-06"), ("beta", "0.04"), ("bf16", "True"), ("seed", "7"), ("loss", "dapo")]
    logs = plans_by_name(
        database(
            *MLFLOW_TABLES,
            *mlflow_run("b", "FAILED", [0.5, None, 1.7976931348623157e308]),
            *mlflow_run("a", "FINISHED", [0.25, 0.75]),
            *mlflow_run("c", "FINISHED", [1.0], stage="deleted"),
            *(f"INSERT INTO params VALUES ('{key}', '{value}', 'a')" for key, value in params),  # noqa: S608
        )
    )
    assert list(logs) == ["name of b", "name of a"]
    failed, finished = logs.values()
    rewards = points(failed, "reward/mean")
    assert (rewards[0], rewards[2], math.isnan(rewards[1])) == (0.5, math.inf, True)
    assert failed.log.metadata.failure == "MLflow recorded that the run failed"
    assert points(finished, "reward/mean") == {0: 0.25, 1: 0.75}
    assert points(finished, "time/wall_seconds") == {0: 0.0, 1: 1.0}
    assert "system/cpu" not in finished.series
    metadata = finished.log.metadata
    assert metadata.config == {
        "learning_rate": 1e-6,
        "beta": 0.04,
        "bf16": True,
        "seed": 7,
        "loss": "dapo",
    }
    assert (metadata.seed, metadata.failure, finished.log.origin) == (7, "", "mlflow")


def test_values_of_mlflow_without_steps_are_counted_in_their_order():
    run = "INSERT INTO runs VALUES ('a', 'a', 'FINISHED', 'active')"
    rewards = [f"INSERT INTO metrics VALUES ('reward', {value}, 5, 'a', 0, 0)" for value in (0.1, 0.2, 0.3)]  # noqa: S608
    [plan] = plans_by_name(database(*MLFLOW_TABLES, run, *rewards)).values()
    assert points(plan, "reward/mean") == {0: 0.1, 1: 0.2, 2: 0.3}
    assert plan.log.metadata.notes == ["All values have the same step: they are counted in their order."]


def test_names_and_parameters_that_mlflow_or_verl_rewrote_are_understood():
    statements = [
        *mlflow_run("a", "FINISHED", [0.5]),
        "INSERT INTO metrics VALUES ('val-core/gsm8k/acc/mean_at_4', 0.5, 5, 'a', 0, 0)",
        f"INSERT INTO params VALUES ('prompt', '{'x' * 30_000}', 'a')",  # noqa: S608
        f"INSERT INTO params VALUES ('deep', '{'[' * 900}', 'a')",  # noqa: S608
        "INSERT INTO params VALUES ('seed', '3', 'a')",
    ]
    [plan] = plans_by_name(database(*MLFLOW_TABLES, *statements)).values()
    assert points(plan, "eval/accuracy") == {0: 0.5}
    assert plan.log.metadata.config == {"deep": "[" * 900, "seed": 3}


def test_a_run_of_trackio_is_read_without_temporary_files():
    """SQLite would sort rows of more than two megabytes in a file, which the sandbox cannot create."""
    rows = [
        row("a", step, {f"metric_{n}": step for n in range(40)} | {"note": "x" * 2_000})
        for step in range(900)
    ]
    logs = plans_by_name(database(METRICS_TABLE, "CREATE INDEX i ON metrics (run_name, step)", *rows))
    assert len(points(logs["a"], "metric_7")) == 900


def test_a_run_with_too_many_metrics_does_not_refuse_the_other_runs_of_a_database():
    wide_run = row("wide", 1, {f"metric_{n}": n for n in range(2_001)})
    logs = plans_by_name(database(METRICS_TABLE, row("a", 1, {"reward": 1}), wide_run))
    assert list(logs) == ["a"]
    assert logs["a"].log.metadata.notes == ["The run wide is left out: it has more than 2,000 columns."]
    with pytest.raises(BadLog, match=r"^has more than 2,000 columns$"):
        parse_logs(database(METRICS_TABLE, wide_run))


def test_a_name_that_cannot_be_stored_is_changed():
    statements = [METRICS_TABLE, row("a", 1, {"\ud800": 1.0, "reward": 2.0})]
    assert set(plans_by_name(database(*statements))["a"].series) == {"_", "reward/mean", "time/wall_seconds"}


def test_only_the_newest_runs_of_a_large_database_are_read():
    runs = [row(f"run {n}", 1, {"reward": n}) for n in range(102)]
    logs = parse_logs(database(METRICS_TABLE, *runs))
    assert [logs[0].metadata.name, logs[-1].metadata.name, len(logs)] == ["run 2", "run 101", 100]
    assert logs[0].metadata.notes == ["Only the newest 100 runs of the database are read."]


def test_runs_beyond_the_limit_of_values_are_left_out():
    """A run of four steps has twelve values with its steps and times."""
    statements = (row(f"run {n}", step, {"reward": n}) for n in range(3) for step in range(4))
    content = io.BytesIO(database(METRICS_TABLE, *statements))
    with ImportSandbox() as sandbox:
        logs = read_database(LogFile(content, sandbox, max_values=17))
        with pytest.raises(BadLog, match="holds more than 2,000,000 values"):
            read_database(LogFile(content, sandbox, max_values=3))
    assert [log.metadata.name for log in logs] == ["run 1", "run 2"]
    assert logs[0].metadata.notes == ["Only the newest 2 runs of the database are read."]


FORGED_TABLE = METRICS_TABLE.replace("CREATE TABLE metrics", "CREATE TABLE real")


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["CREATE TABLE t (a)"], "there is no table of metrics as Trackio or MLflow makes it"),
        ([FORGED_TABLE, "CREATE VIEW metrics AS SELECT * FROM real"], "metrics is not a plain table"),
        (
            ["CREATE VIRTUAL TABLE metrics USING fts5(run_name, step)"],
            "metrics is not a plain table",
        ),
        (
            [*MLFLOW_TABLES[1:], "CREATE TABLE real (a)", "CREATE VIEW runs AS SELECT * FROM real"],
            "runs is not a plain table",
        ),
    ],
)
def test_a_database_of_another_program_gets_one_sentence(statements, reason):
    with pytest.raises(BadLog, match=reason):
        parse_logs(database(*statements))


def test_a_damaged_database_gets_one_sentence():
    content = (LOGS / "trackio.db").read_bytes()
    for damaged_content in (content[:200], content[:5_000], content[:4096] + b"\xff" * 20_000):
        with pytest.raises(BadLog, match=r"^(is damaged|cannot be read|has no)"):
            parse_logs(damaged_content)


def test_rows_of_a_database_that_are_not_metrics_are_skipped():
    odd_rows = [
        row("a", 2, cells) for cells in ([1], "x", {"y": "words"}, {"deep": {"_type": "trackio.table"}})
    ]
    logs = plans_by_name(database(METRICS_TABLE, row("a", 1, {"reward": 1}), *odd_rows))
    assert points(logs["a"], "reward/mean") == {1: 1.0}


# ---------------------------------------------------------------- archives

CSV = b"step,reward\n1,0.5\n2,0.75\n"
ROLLOUT = [
    {
        "input": "1+1=",
        "output": text,
        "gts": "2",
        "score": score,
        "step": 1,
        "acc": score == 1.0,
        "style": 0.5,
    }
    for text, score in (("2", 1.0), ("3", 0.0))
]
DUMP = "".join(json.dumps(record) + "\n" for record in ROLLOUT).encode()


@pytest.mark.parametrize(
    "pack",
    [
        make_zip,
        make_tar,
        lambda files: make_tar(files, "w:gz"),
        lambda files: make_zip(files, zipfile.ZIP_STORED),
    ],
)
def test_a_training_directory_is_one_run_with_its_rollouts(pack):
    state = (LOGS / "trainer_state.json").read_bytes()
    shorter = json.loads(state)
    shorter["log_history"] = shorter["log_history"][:2]
    content = pack(
        {
            "out/checkpoint-4/trainer_state.json": json.dumps(shorter).encode(),
            "out/checkpoint-12/trainer_state.json": state,
            "out/completions/completions_00012.parquet": (LOGS / "completions.parquet").read_bytes(),
            "out/readme.md": b"words",
        }
    )
    [log] = parse_logs(content)
    plan = plan_import(log)
    assert (log.metadata.name, log.origin, len(log.completions)) == ("out", "trl", 8)
    assert list(points(plan, "reward/mean")) == [2, 4, 6, 8, 10, 12]
    assert any(note.startswith("1 files of the archive are not logs") for note in log.metadata.notes)


def test_event_files_of_one_directory_are_one_run():
    events = (LOGS / "events.out.tfevents").read_bytes()
    logs = parse_logs(
        make_zip({"runs/a/events.1": events, "runs/a/events.2": events, "runs/b/events.1": events})
    )
    assert [log.metadata.name for log in logs] == ["a", "b"]
    assert "2 event files of one directory are one run." in logs[0].metadata.notes
    assert points(plan_import(logs[0]), "reward/mean") == points(plan_import(logs[1]), "reward/mean")


def test_dumps_of_verl_are_rollouts_of_training_and_validation():
    later_dump = DUMP.replace(b'"step": 1', b'"step": 2')
    [log] = parse_logs(make_zip({"rollout/1.jsonl": DUMP, "validation/2.jsonl": later_dump}))
    (first, [train]), (second, [held_out]) = log.completions.steps()
    assert (first, train.kind, second, held_out.kind) == (1, "train", 2, "eval")
    assert [(completion.text, completion.reward, completion.correct) for completion in train.completions] == [
        ("2", 1.0, True),
        ("3", 0.0, False),
    ]
    assert (train.prompt, train.answer, train.completions[0].rewards["style"]) == ("1+1=", "2", 0.5)
    plan = plan_import(log)
    assert points(plan, "reward/accuracy") == {1: 0.5}
    assert points(plan, "eval/accuracy") == {2: 0.5}


@pytest.mark.parametrize(
    ("directory", "kind"),
    [("val_dump", "eval"), ("Eval", "eval"), ("run1-validation", "eval"), ("interval", "train"),
     ("retrieval", "train"), ("medieval", "train")],
)  # fmt: skip
def test_a_word_that_begins_with_val_or_eval_names_a_held_out_dump(directory, kind):
    [log] = parse_logs(make_zip({f"{directory}/2.jsonl": DUMP}))
    (_, [group]), *_ = log.completions.steps()
    assert group.kind == kind


def test_names_in_an_archive_are_labels_that_are_never_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path.parent / "escaped.csv"
    logs = parse_logs(make_zip({"../escaped.csv": CSV, "/etc/x.csv": CSV, "a\\..\\..\\b.csv": CSV}))
    assert len(logs) == 3
    assert not target.exists()
    assert list(tmp_path.iterdir()) == []


def test_links_and_devices_of_an_archive_are_not_followed():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind in (
            ("a.csv", tarfile.SYMTYPE),
            ("b.csv", tarfile.LNKTYPE),
            ("c.csv", tarfile.CHRTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    with pytest.raises(BadLog, match="is an archive without files"):
        parse_logs(file.getvalue())


def test_a_file_that_unpacks_to_more_than_its_declared_size_is_refused():
    forged_archive = bytearray(make_zip({"a.csv": b"step,x\n" + b"1,1\n" * 1_000_000}))
    size_offset = forged_archive.rfind(b"PK\x01\x02") + 24  # size of the file in the central directory
    forged_archive[size_offset : size_offset + 4] = (10).to_bytes(4, "little")
    with pytest.raises(BadLog, match="unpacks to more than 10 bytes"):
        parse_logs(bytes(forged_archive))


def test_files_that_a_tracker_writes_beside_a_run_are_not_runs():
    printed_output = "".join(f"step={step} reward={step / 10}\n" for step in range(9)).encode()
    logs = parse_logs(
        make_zip({
            "a/run.wandb": (LOGS / "run.wandb").read_bytes(),
            "a/files/output.log": printed_output,
            "a/logs/seed-2.csv": CSV,
        })
    )  # fmt: skip
    assert sorted(log.origin for log in logs) == ["csv", "wandb"]


def test_the_limit_of_values_applies_to_the_whole_archive(monkeypatch):
    """Of three files with 4 values each, the third one is refused before it is read to its end."""
    monkeypatch.setattr("backend.exchange.imports.archive.MAX_POINTS", 10)
    assert len(parse_logs(make_zip({"a/x.csv": CSV, "b/x.csv": CSV}))) == 2
    for content in (
        CSV,
        b'{"step": 1, "reward": 1, "kl": 1}',
        DUMP + DUMP.replace(b'"step": 1', b'"step": 2'),
    ):
        with pytest.raises(BadLog, match="holds more than 2,000,000 values; that is the limit"):
            parse_logs(make_zip({"a/x.csv": CSV, "b/x.csv": CSV, "c/1": content}))


@pytest.mark.parametrize(("head", "row"), [(b"a,b\n", b",\n"), (b"", b'{"a": null}\n'), (b"a,b\n", b"x,y\n")])
def test_rows_without_values_count_towards_the_limit(monkeypatch, head, row):
    monkeypatch.setattr("backend.exchange.imports.archive.MAX_POINTS", 10)
    for files in (
        {"a/x.csv": head + 11 * row},
        {"a/x.csv": CSV, "b/1": head + 7 * row},
        {"a/1": head + 7 * row, "b/x.csv": CSV},
    ):
        with pytest.raises(BadLog, match=r"holds more than 2,000,000 (rows|values); that is the limit"):
            parse_logs(make_zip(files))
    assert len(parse_logs(make_zip({"a/x.csv": CSV, "b/1": head + 6 * row}))) == 2


def test_only_the_longest_state_of_a_run_of_trl_counts_for_the_limit(monkeypatch):
    rows = [{"step": step, "loss": 1.0} for step in range(5)]
    states = {f"checkpoint-{n}/trainer_state.json": {"log_history": rows[:n]} for n in (1, 5, 3, 4)}
    content = make_zip({name: json.dumps(state).encode() for name, state in states.items()})
    monkeypatch.setattr("backend.exchange.imports.archive.MAX_POINTS", 20)
    [log] = parse_logs(content)
    assert (len(log.table), log.table.points) == (5, 10)
    assert (
        "Of 4 checkpoints, the longest history is taken: checkpoint-5/trainer_state.json."
        in log.metadata.notes
    )


def test_event_files_of_one_run_may_come_in_any_order_within_the_limit(monkeypatch):
    events = (LOGS / "events.out.tfevents").read_bytes()
    [single_log] = parse_logs(events)
    monkeypatch.setattr("backend.exchange.imports.archive.MAX_POINTS", 2 * single_log.table.points)
    [joined_log] = parse_logs(make_zip({"a/events.1": events, "a/events.2": events}))
    assert joined_log.table.points == 2 * single_log.table.points


def test_reading_stops_in_an_archive_of_too_many_runs(monkeypatch):
    read_files = []

    def count_and_read(file):
        read_files.append(file)
        return read_csv(file)

    monkeypatch.setitem(FORMATS, "csv", FORMATS["csv"]._replace(read=count_and_read))
    with pytest.raises(BadLog, match="holds more than 100 runs"):
        parse_logs(make_zip({f"{number}.csv": CSV for number in range(150)}))
    assert len(read_files) == 101


@pytest.mark.parametrize("offset", [2**62, 2**63 - 1, 2**63, 2**64 - 2])
def test_a_file_header_beyond_the_end_of_the_archive_is_damage(offset):
    """The eight-byte zip64 offset of the header points beyond the end."""
    forged_archive = bytearray(make_zip({"a.csv": CSV}))
    entry, extra_field = forged_archive.rfind(b"PK\x01\x02"), struct.pack("<HHQ", 1, 8, offset)
    struct.pack_into("<H", forged_archive, entry + 30, len(extra_field))
    struct.pack_into("<I", forged_archive, entry + 42, 0xFFFFFFFF)
    forged_archive[entry + 46 + len("a.csv") : entry + 46 + len("a.csv")] = extra_field
    end = forged_archive.rfind(b"PK\x05\x06")
    size = struct.unpack_from("<I", forged_archive, end + 12)[0]
    struct.pack_into("<I", forged_archive, end + 12, size + len(extra_field))
    with pytest.raises(BadLog, match=r"'a\.csv' is damaged: 'a\.csv' does not begin where the archive says"):
        parse_logs(bytes(forged_archive))


@pytest.mark.parametrize("surplus", [0, 1, 100, 150, 299])
def test_a_file_is_complete_even_if_zlib_holds_back_its_last_bytes(surplus):
    """With slightly more than 1 MiB, zlib consumes all input while output is still pending."""
    content = CSV + b"#" * ((1 << 20) + surplus - len(CSV))
    output = io.BytesIO()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed_content = packer.compress(content) + packer.flush()
    _inflate(io.BytesIO(packed_content), output, zlib.decompressobj(-15), len(content), len(packed_content))
    assert output.getvalue() == content
    for cut_bytes in (1, len(packed_content) // 2):
        with pytest.raises(BadLog, match="is cut off"):
            _inflate(
                io.BytesIO(packed_content[:-cut_bytes]), io.BytesIO(), zlib.decompressobj(-15), 1 << 30, None
            )


@pytest.mark.parametrize("size", [1, 70_000])
def test_all_gzip_members_are_read_and_trailing_zeros_skipped(size):
    """A trainer that appends to its log writes such a file."""
    first, second = b"step,loss\n1,1\n" + b"\n" * size, b"2,2\n"
    [log] = parse_logs(gzip.compress(first) + gzip.compress(b"") + gzip.compress(second) + b"\0" * size)
    assert len(log.table) == 2
    assert log.table.points == 4


def test_gzip_members_share_the_limits_of_one_file(monkeypatch):
    member = gzip.compress(CSV)
    for content, reason in (
        (member + member[:-9], "is cut off"),
        (member + b"more text", "is damaged"),
        (member * 3, "unpacks to more than"),
    ):
        with pytest.raises(BadLog, match=reason):
            _gunzip(io.BytesIO(content), io.BytesIO(), 2 * len(CSV))
    monkeypatch.setattr("backend.exchange.imports.archive.MAX_MEMBERS", 2)
    with pytest.raises(BadLog, match="has more than 2 gzip members"):
        _gunzip(io.BytesIO(gzip.compress(b"") * 3), io.BytesIO(), 10)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (make_zip({}), "is an empty zip archive"),
        (make_zip({"a.zip": make_zip({"a.csv": CSV})}), "is an archive in an archive"),
        (make_zip({"a.csv": CSV})[:-30], "is damaged: File is not a zip file"),
        (make_tar({"a.csv": CSV}, "w:gz")[:-40], "is cut off: its packed content does not end|is damaged"),
        (make_zip({f"{n}.csv": CSV for n in range(101)}), "holds more than 100 runs; that is the limit"),
        (make_zip({f"{n}": b"x" for n in range(2_001)}), "is an archive of more than 2,000 files"),
    ],
    ids=["empty", "nested", "cut", "gzip cut", "runs", "files"],
)
def test_an_archive_that_cannot_be_read_gets_one_sentence(content, reason):
    with pytest.raises(BadLog, match=reason):
        parse_logs(content)


# ---------------------------------------------------------------- replies of the sandbox are not trusted


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"used": 10**9, "numbers": "", "is_there": "", "labels": {}},
        {"used": 1, "numbers": "AAAA", "is_there": "AAAA", "labels": {}},
        {"used": 0, "numbers": "", "is_there": "", "labels": {}},
        {"rows": "many", "columns": []},
    ],
    ids=["none", "empty", "rows", "short", "endless", "words"],
)
def test_a_malformed_reply_is_refused(monkeypatch, answer):
    def answer_request(_self, operation, **_):
        return (
            {"rows": 2, "columns": [["x", "number", ""]]}
            if operation == "parquet-schema" and answer
            else answer
        )

    monkeypatch.setattr("backend.exchange.imports.log_file.Sandbox.run_operation", answer_request)
    with pytest.raises(BadLog, match="sent an invalid answer"):
        parse_logs(VALID_PARQUET)


def test_leftover_copies_of_a_killed_import_are_removed_by_the_next_import(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale_directory, fresh_directory, link = (
        tmp_path / f"grpolab-import-{name}" for name in ("left", "fresh", "link")
    )
    other_directory = tmp_path / "other"
    for directory in (stale_directory, fresh_directory, other_directory):
        directory.mkdir()
        (directory / "0").write_bytes(b"copy")
    link.symlink_to(other_directory)
    with ImportSandbox() as at_work:
        at_work.new_path().write_bytes(b"copy")
        for directory in (stale_directory, link, at_work.new_path().parent):
            os.utime(directory, (1, 1), follow_symlinks=False)
        with ImportSandbox():
            pass
        assert at_work.new_path().parent.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [fresh_directory.name, link.name, "other"]
    assert (other_directory / "0").exists()
