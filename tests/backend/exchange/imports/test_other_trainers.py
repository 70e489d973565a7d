"""Tests of real logs of TRL, verl, TensorBoard and W&B (`make import-fixtures`), and of damaged ones."""

import io
import json
import math
import struct
import zlib
from pathlib import Path

import pytest

from backend.exchange.imports import leveldb_log, tfrecord
from backend.exchange.imports.binary import BinaryReader
from backend.exchange.imports.formats import detect, read_logs
from backend.exchange.imports.log_file import ImportSandbox, LogFile
from backend.exchange.imports.operations import LogPart, Point
from backend.exchange.imports.plan import plan_import
from backend.exchange.imports.protobuf import fields
from backend.exchange.imports.sandbox_operations import OPERATIONS
from backend.exchange.imports.table import BadLog

LOGS = Path(__file__).parent / "logs"


def plan_content(content, **choices):
    return plan_import(read_logs(io.BytesIO(content))[1][0], **choices)


def test_numbers_beyond_the_range_of_floats_are_bad_lines_or_ignored_terms():
    rows = [{"step": 1, "input": "p", "output": "a", "score": 1.7e308, "x": int("1" * 400)}]
    rows += [{"step": int("1" * 400), "input": "p", "output": "b", "score": 1.0}]
    rows += [{"step": 1, "input": "p", "output": "c", "score": 1.7e308}]
    plan = plan_content("".join(json.dumps(row) + "\n" for row in rows).encode())
    assert points(plan, "reward/mean") == {1: pytest.approx(math.inf)}
    assert plan.log.table.bad.count == 1


def test_a_step_beyond_64_bits_is_ignored():
    log_part = LogPart()
    log_part.add(Point("loss", 10**20, 0.5))
    log_part.add(Point("loss", 3, 0.25))
    assert len(log_part) == 1


def points(plan, metric):
    """Return {step: value} of a metric."""
    series = plan.series[metric]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


# ---------------------------------------------------------------- genuine logs


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("trainer_state.json", "trl"),
        ("events.out.tfevents", "tensorboard"),
        ("run.wandb", "wandb"),
        ("verl.jsonl", "verl"),
        ("verl_console.txt", "console"),
    ],
)
def test_the_type_of_a_log_is_recognised_by_its_content(name, kind):
    assert detect(io.BytesIO((LOGS / name).read_bytes())) == kind


def test_the_three_logs_of_one_trl_training_agree():
    state, events, wandb = (
        plan_content((LOGS / name).read_bytes())
        for name in ("trainer_state.json", "events.out.tfevents", "run.wandb")
    )
    for metric in ("reward/mean", "reward/std", "length/mean", "kl/k3", "loss/total", "reward/digits/mean"):
        assert list(points(state, metric)) == [2, 4, 6, 8, 10, 12], metric
        for other_log in (events, wandb):
            assert points(other_log, metric) == pytest.approx(points(state, metric), rel=1e-6), metric
    assert (state.log.origin, events.log.origin, wandb.log.origin) == ("trl", "tensorboard", "wandb")
    assert list(points(state, "eval_reward")) == list(points(wandb, "eval/reward")) == [6, 12]
    assert wandb.step == "train/global_step"
    for plan in (state, events, wandb):
        assert plan.log.table.bad.count == plan.restart_count == 0


def test_trl_logs_contain_config_seed_and_times():
    state = read_logs(io.BytesIO((LOGS / "trainer_state.json").read_bytes()))[1][0].metadata
    assert (state.steps, state.config["max_steps"], state.config["logging_steps"]) == (12, 12, 2)
    for name in ("events.out.tfevents", "run.wandb"):
        facts = read_logs(io.BytesIO((LOGS / name).read_bytes()))[1][0].metadata
        assert facts.seed == 11
        assert facts.config["learning_rate"] == 1e-3
        assert 1.7e9 < (facts.started_at or 0) <= (facts.finished_at or math.inf)
    assert facts.name == "tiny-digits"


def test_a_verl_file_matches_its_console_output():
    file, console = (plan_content((LOGS / name).read_bytes()) for name in ("verl.jsonl", "verl_console.txt"))
    for metric in (
        "policy/entropy",
        "reward/mean",
        "time/step_seconds",
        "optim/grad_norm",
        "critic/score/mean",
    ):
        assert points(console, metric) == points(file, metric), metric
        assert list(points(file, metric)) == [1, 2, 3], metric
    assert math.isnan(points(file, "kl/k3")[3])
    assert points(file, "eval/accuracy") == {3: 0.25}
    assert console.log.metadata.notes[0] == "1 other line of output was passed over."


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"log_history": []}, "has no rows"),
        ({"log_history": [1]}, "has no rows; line 0 entry 1 of log_history is not an object"),
        ({"log_history": {}}, "has no log_history, which trainer_state.json holds"),
        ({"log_history": [{"loss": "words"}]}, "has no metric: 'loss' holds no numbers"),
    ],
)
def test_a_trainer_state_without_values_is_reported(state, reason):
    with pytest.raises(BadLog, match=f"^{reason}"):
        plan_content(json.dumps(state, indent=1).encode())


# ---------------------------------------------------------------- TensorBoard by hand


def varint(number):
    encoded = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def field(number, value):
    """Return a protobuf field: an int as varint, a float as double, bytes and messages with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame_record(content):
    length = struct.pack("<Q", len(content))
    checks = [struct.pack("<I", tfrecord.masked_crc32c(block)) for block in (length, content)]
    return length + checks[0] + content + checks[1]


def scalar(tag, step, value, time=1.7e9):
    simple_value = varint(2 << 3 | 5) + struct.pack("<f", value)
    return frame_record(
        field(1, time) + field(2, step) + field(5, field(1, field(1, tag.encode()) + simple_value))
    )


HEAD = frame_record(field(1, 1.7e9) + field(3, b"brain.Event:2"))


def test_scalars_of_every_kind_are_read_and_images_skipped():
    tensor = field(1, 1) + field(4, struct.pack("<f", 0.5))
    tensor_value = field(1, 1) + field(5, struct.pack("<f", 0.25))
    events = [
        frame_record(field(1, 1.7e9) + field(2, 1) + field(5, field(1, field(1, b"a") + field(8, tensor)))),
        frame_record(
            field(1, 1.7e9) + field(2, 2) + field(5, field(1, field(1, b"a") + field(8, tensor_value)))
        ),
        frame_record(
            field(1, 1.7e9)
            + field(2, 2)
            + field(5, field(1, field(1, b"picture") + field(4, b"x" * 400_000)))
        ),
        scalar("a", 3, math.nan),
        scalar("a", 4, -math.inf, time=1.7e9 + 60),
    ]
    plan = plan_content(HEAD + b"".join(events))
    assert repr(points(plan, "a")) == "{1: 0.5, 2: 0.25, 3: nan, 4: -inf}"
    assert points(plan, "time/wall_seconds") == {1: 0, 2: 0, 3: 0, 4: 60}
    assert "picture" not in plan.series


def test_a_metric_called_step_is_read_in_addition_to_the_steps():
    plan = plan_content(HEAD + b"".join(scalar(tag, n, n * 10.0) for n in (1, 2) for tag in ("step", "a")))
    assert points(plan, "a") == {10: 10.0, 20: 20.0}


def test_a_truncated_event_file_keeps_its_complete_records():
    events = HEAD + scalar("a", 1, 1.0) + scalar("a", 2, 2.0)
    plan = plan_content(events[:-5])
    assert points(plan, "a") == {1: 1.0}
    [note] = plan.log.metadata.notes
    assert note.startswith("The file ends in the middle of a record: ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEAD, "has no scalars"),
        (HEAD + frame_record(b"\xff" * 40), "is damaged after byte 0"),
        (HEAD + frame_record(field(5, field(1, field(1, b"a") + b"\x12\xff\xff\xff\xff\x0f"))), "is damaged"),
        (HEAD + scalar("a", 1, 1.0) + b"\x00" * 400, "is damaged"),
        (HEAD + b"".join(scalar(f"t{n}", 1, 1.0) for n in range(2_500)), "has more than 2,000 columns"),
    ],
)
def test_a_damaged_event_file_gets_one_sentence(content, reason):
    with pytest.raises(BadLog, match=f"^{reason}"):
        plan_content(content)


def test_negative_and_absurd_steps_are_ignored():
    plan = plan_content(HEAD + scalar("a", -1, 1.0) + scalar("a", 2**40, 1.0) + scalar("a", 5, 2.0))
    assert points(plan, "a") == {5: 2.0}
    assert plan.log.table.bad.count == 2


@pytest.mark.parametrize("message", [b"\x80" * 11, b"\x0a\x05ab", b"\x07", b"\x00\x00", b"\x09abc"])
def test_invalid_messages_are_errors_and_allocate_no_memory(message):
    with pytest.raises(ValueError, match=r"no end|beyond|no number"):
        list(fields(message))


# ---------------------------------------------------------------- W&B by hand


def split_into_chunks(records, magic=leveldb_log.WANDB):
    """Return the bytes of a `.wandb` or `.swanlab` file with these records."""
    file = bytearray(magic + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        kind, remainder = leveldb_log.FIRST, record
        while True:
            room = leveldb_log.BLOCK_BYTES - len(file) % leveldb_log.BLOCK_BYTES
            if room < leveldb_log.HEADER_BYTES:
                file += b"\0" * room
                room = leveldb_log.BLOCK_BYTES
            fragment, remainder = (
                remainder[: room - leveldb_log.HEADER_BYTES],
                remainder[room - leveldb_log.HEADER_BYTES :],
            )
            if not remainder:
                kind = leveldb_log.FULL if kind == leveldb_log.FIRST else leveldb_log.LAST
            file += (
                struct.pack("<IHB", zlib.crc32(fragment, zlib.crc32(bytes([kind]))), len(fragment), kind)
                + fragment
            )
            if not remainder:
                break
            kind = leveldb_log.MIDDLE
    return bytes(file)


def history(step, **values):
    items = [
        field(1, field(1, name.encode()) + field(16, json.dumps(metric_value).encode()))
        for name, metric_value in values.items()
    ]
    return field(2, b"".join(items) + field(2, field(1, step)))


def config(**values):
    updates = [
        field(1, field(1, name.encode()) + field(16, json.dumps(setting).encode()))
        for name, setting in values.items()
    ]
    return field(5, b"".join(updates))


def test_history_config_and_exit_code_of_a_run_of_wandb():
    records = [
        config(lr=1e-6, seed=5, note="x" * 60_000),
        *(history(n, loss=n / 2, text="words", big="y" * 40_000) for n in range(20)),
        history(20, loss=math.nan),
        field(18, field(1, 1)),
    ]
    plan = plan_content(split_into_chunks(records))
    assert points(plan, "loss/total") | {20: 0} == {n: n / 2 for n in range(20)} | {20: 0}
    assert math.isnan(points(plan, "loss/total")[20])
    facts = plan.log.metadata
    assert (facts.seed, facts.config["lr"], len(facts.config["note"])) == (5, 1e-6, 60_000)
    assert facts.failure == "the process ended with exit code 1"


def test_a_truncated_wandb_run_keeps_its_complete_records():
    plan = plan_content(split_into_chunks([history(n, loss=float(n)) for n in range(5)])[:-4])
    assert points(plan, "loss/total") == {n: float(n) for n in range(4)}
    assert plan.log.metadata.notes


def test_a_wandb_chunk_with_a_wrong_checksum_is_reported():
    content = bytearray(split_into_chunks([history(n, loss=float(n)) for n in range(5)]))
    content[-3] ^= 1
    with pytest.raises(BadLog, match=r"^is damaged after byte 7: the chunk at byte \d+ is damaged"):
        plan_content(bytes(content))


def test_a_record_that_is_too_large_is_reported():
    with pytest.raises(BadLog, match="has a record of more than 8,388,608 bytes"):
        plan_content(split_into_chunks([history(1, loss=1.0), config(huge="z" * 9_000_000)]))


# ---------------------------------------------------------------- SwanLab by hand


def swanlab_scalar(key, step, value):
    """Return a record as SwanLab 0.10 writes it, in which zeros are omitted."""
    time = field(1, 1_795_980_448 + step) + field(2, 815_341_000)
    number = b"\x09" + struct.pack("<d", value) if value else b""
    parts = field(1, key.encode()) + (field(2, step) if step else b"") + field(4, time) + field(5, number)
    return field(1, 8) + field(13, parts)


def swanlab_json(kind, **data):
    """Return a record as SwanLab 0.6 and 0.7 write it."""
    return json.dumps({"model_type": kind, "data": data}).encode()


def swanlab_json_scalar(key, step, value):
    metric = {"index": step, "data": value, "create_time": f"2026-11-29T19:27:{step:02}.632829+00:00"}
    return swanlab_json("Scalar", metric=metric, key=key, step=step, epoch=step + 1)


SWANLAB_RUNS = {
    "protobuf": [
        field(10, field(1, b"p") + field(4, b"radiant-cat-15")),
        field(12, field(3, b"train/reward")),
        *(swanlab_scalar("train/reward", step, value) for step, value in enumerate((0.0, 0.5, math.nan))),
        swanlab_scalar("__swanlab__.cpu.pct", 0, 99.0),
        field(11, field(1, 2) + field(2, b"Traceback (most recent call last):\nRuntimeError: boom\n")),
    ],
    "JSON": [
        swanlab_json("Header", backup_type="DEFAULT"),
        swanlab_json("Experiment", id="m6", name="radiant-cat-15"),
        *(swanlab_json_scalar("train/reward", step, value) for step, value in enumerate((0.0, 0.5, "NaN"))),
        swanlab_json_scalar("__swanlab__.cpu.pct", 0, 99.0),
        swanlab_json("Footer", success=False),
    ],
}


@pytest.mark.parametrize(
    ("kind", "failure"),
    [("protobuf", "RuntimeError: boom"), ("JSON", "SwanLab recorded that the run failed")],
)
def test_scalars_name_times_and_failure_of_a_run_of_swanlab(kind, failure):
    plan = plan_content(split_into_chunks(SWANLAB_RUNS[kind], leveldb_log.SWANLAB))
    rewards = points(plan, "reward/mean")
    assert (rewards[0], rewards[1]) == (0.0, 0.5)
    assert math.isnan(rewards[2])
    assert points(plan, "time/wall_seconds") == {0: 0.0, 1: 1.0, 2: 2.0}
    assert not any("swanlab" in name for name in plan.series)
    facts = plan.log.metadata
    assert (plan.log.origin, facts.name, facts.failure) == ("swanlab", "radiant-cat-15", failure)


def test_an_evaluation_of_swanlab_with_a_count_of_its_own_is_no_restart():
    records = [
        record
        for step in range(20)
        for record in (
            swanlab_json_scalar("reward", step, step / 20),
            *([swanlab_json_scalar("eval/accuracy", step // 10, 0.5)] if step % 10 == 9 else []),
        )
    ]
    plan = plan_content(split_into_chunks(records, leveldb_log.SWANLAB))
    assert plan.restart_count == 0
    assert points(plan, "time/wall_seconds") == {step: float(step) for step in range(20)}
    assert points(plan, "eval/accuracy") == {0: 0.5, 1: 0.5}


def test_zeros_at_the_end_and_odd_values_leave_the_other_records():
    records = [swanlab_json_scalar("reward", 1, 0.5), swanlab_json_scalar("reward", 2, 10**400)]
    records += [swanlab_json("Scalar", metric={"data": 1.0}, key=key, step=3) for key in (["a"], None)]
    plan = plan_content(split_into_chunks(records, leveldb_log.SWANLAB) + b"\0" * 5_000)
    assert points(plan, "reward/mean") == {1: 0.5}
    assert set(plan.series) == {"reward/mean", "time/wall_seconds"}
    [note] = plan.log.metadata.notes
    assert "5,000 bytes are left out" in note


@pytest.mark.parametrize("record", [b"{", b'{"a":' * 50_000, b"\xff" * 40])
def test_a_damaged_record_of_swanlab_is_reported(record):
    with pytest.raises(BadLog, match=r"^is damaged after byte 7"):
        plan_content(split_into_chunks([record], leveldb_log.SWANLAB))


# ---------------------------------------------------------------- replies of the sandbox are not trusted


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"used": 10**9, "names": [], "columns": ["", "", "", ""], "facts": {}},
        {"used": 1, "names": [], "columns": ["AAAA", "", "", ""], "facts": {}},
        {
            "used": 1,
            "names": ["a"],
            "columns": ["/////w==", "A" * 10 + "A=", "A" * 10 + "A=", "A" * 10 + "A="],
            "facts": {},
        },
        {"used": 1, "names": ["a"], "columns": "none", "facts": {}},
    ],
)
def test_a_malformed_reply_is_refused(monkeypatch, answer):
    monkeypatch.setattr("backend.exchange.imports.log_file.Sandbox.run_operation", lambda *_, **__: answer)
    with ImportSandbox() as sandbox, pytest.raises(BadLog, match="sent an invalid answer"):
        BinaryReader("tensorboard", LogFile(io.BytesIO(HEAD), sandbox)).read(0)


def test_the_operations_of_the_sandbox_are_forked():
    assert all(operation.is_forked for operation in OPERATIONS.values())
