"""Tests of completions in blocks, which must be restored exactly and detect damage."""

import pytest
import zstandard
from sqlalchemy import select, update

from backend.rollouts.block_check import find_damaged_groups
from backend.service.doctor.points import completions as doctor_of_completions
from backend.storage.completion import Completion
from backend.storage.completion_codec import CompletionsDamaged, decode, encode
from backend.storage.completions import damage_reason, find_completion
from backend.storage.models import RolloutGroup
from backend.storage.rollout_words import index_groups
from tests.factories import MadeCompletion, make_group, make_run

GROUP_ID = "01hzzzzzzz00000100000000zy"
HOSTILE_TEXT = "a\0b\ud800c\u202e</script>é\n"


def sample_completions(*texts, **fields):
    return [
        Completion(GROUP_ID, position, text, 1.0, 0.5, 3, "stop", True, {"a": 1.0}, [], [], {})._replace(
            **fields
        )
        for position, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    "completions",
    [
        [],
        sample_completions("", HOSTILE_TEXT, "x" * 100_000),
        sample_completions("x", reward=None, advantage=None, correct=None, finish_reason="", tokens=0),
        sample_completions("x", "y", flags=["truncated", "wrong"], non_finite={"reward": "NaN"}),
        sample_completions("x", rewards={"lone \ud800": "Infinity"})
        + sample_completions("-", "y", rewards={"b": -0.0, "a": None})[1:],
        sample_completions("x", "y", turns=[{"tool": "calculator", "call": [0, 1], "seconds": 0.25}]),
        sample_completions("0", rewards={"a": 0.0}) + sample_completions("-", "1", rewards={"a": -0.0})[1:],
    ],
)
def test_packed_completions_are_restored(completions):
    decoded = decode(GROUP_ID, encode(completions))
    assert decoded == completions
    assert repr(decoded) == repr(completions)  # 0.0 equals -0.0, and 1 equals True


def test_any_changed_byte_is_detected():
    block = encode(sample_completions("what", "it", "holds"))
    for offset in range(len(block)):
        changed_block = block[:offset] + bytes([block[offset] ^ 0x20]) + block[offset + 1 :]
        with pytest.raises(CompletionsDamaged):
            decode(GROUP_ID, changed_block)
    for end in range(len(block)):
        with pytest.raises(CompletionsDamaged):
            decode(GROUP_ID, block[:end])


def test_endlessly_nested_columns_are_damage():
    content = b"[" * 5_000 + b"\n"
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    with pytest.raises(CompletionsDamaged, match="its columns cannot be read"):
        decode(GROUP_ID, b"\1" + frame)


@pytest.fixture
def run(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        for step in range(1, 5):
            make_group(
                session, run, step=step, completions=(MadeCompletion(text=HOSTILE_TEXT), MadeCompletion())
            )
        make_group(session, run, step=5, kind="eval")
    list(index_groups(database.sessions))
    return run


def test_a_damaged_group_is_named_and_others_are_read(client, database, run):
    with database.sessions.begin() as session:
        groups = session.scalars(select(RolloutGroup.id).order_by(RolloutGroup.step)).all()
        block = session.scalar(select(RolloutGroup.completions).where(RolloutGroup.id == groups[0]))
        damaged_block = block[:-9] + bytes([block[-9] ^ 1]) + block[-8:]
        session.execute(
            update(RolloutGroup).where(RolloutGroup.id == groups[0]).values(completions=damaged_block)
        )
    items = client.get("/api/v1/rollouts", params={"run": run.id}).json()["items"]
    assert [len(group["completions"]) for group in items] == [0, 2, 2, 2, 2]
    assert [bool(group["damage"]) for group in items] == [True, False, False, False, False]
    assert damage_reason(groups[0]) == items[0]["damage"]
    matches = client.get("/api/v1/rollouts/search", params={"runs": run.id, "q": "`</script>`"}).json()
    assert [group["step"] for group in matches["items"]] == [2, 3, 4]
    assert client.get(f"/api/v1/rollouts/{groups[0]}/tokens").status_code == 404
    with database.sessions.begin() as session:
        session.execute(update(RolloutGroup).where(RolloutGroup.id == groups[0]).values(completions=block))
    items = client.get("/api/v1/rollouts", params={"run": run.id, "step": 1}).json()["items"]
    assert (len(items[0]["completions"]), items[0]["damage"]) == (2, "")


@pytest.mark.parametrize("name", ["x", "\0", "0" * 26, "é" * 26, "01HZZZZZZZ00000100000000ZY"])
def test_an_unknown_id_finds_nothing(database, run, name):
    with database.sessions() as session:
        assert find_completion(session, name) is None


def test_the_doctor_and_a_backup_name_a_damaged_group(database, run):
    with database.sessions.begin() as session:
        assert doctor_of_completions(session).is_good
        first = session.scalars(select(RolloutGroup.id).order_by(RolloutGroup.step)).first()
        session.execute(update(RolloutGroup).where(RolloutGroup.id == first).values(completions=b"\1broken"))
        finding = doctor_of_completions(session)
        assert not finding.is_good
        [sentence] = find_damaged_groups(session)
    assert sentence.startswith(f"run {run.id}, step 1, train, prompt 0: the block that holds its completions")
