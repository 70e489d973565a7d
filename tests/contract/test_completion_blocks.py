"""Completions in blocks: what was written comes back, damage is found, and old rows are packed."""

import math
import sqlite3
from contextlib import closing

import pytest
import zstandard
from sqlalchemy import delete, event, func, insert, select, text, update
from sqlalchemy.exc import OperationalError

from backend.db.completion import Completion, id_at
from backend.db.completion_codec import LIMIT_TEXT_BYTES, CompletionsDamaged, decode, encode
from backend.db.completions import completion_named, completions_of, damage_of
from backend.db.engine import new_id
from backend.db.models import Rollout, RolloutAlias, RolloutGroup, RolloutLabel
from backend.db.rollout_words import index_groups, reset
from backend.doctor.points import completions as doctor_of_completions
from backend.rollouts import conversion
from backend.rollouts.block_check import damaged_groups
from backend.rollouts.conversion import convert, is_unconverted
from backend.rollouts.labels import LabelRequest, put_label
from backend.rollouts.packing import pack_text
from tests.factories import MadeCompletion, make_group, make_run, stored_completions

GROUP = "01hzzzzzzz00000100000000zy"
HOSTILE = "a\0b\ud800c\u202e</script>é\n"


def some(*texts, **fields):
    return [
        Completion(GROUP, position, text, 1.0, 0.5, 3, "stop", True, {"a": 1.0}, [], [], {})._replace(
            **fields
        )
        for position, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    "completions",
    [
        [],
        some("", HOSTILE, "x" * 100_000),
        some("x", reward=None, advantage=None, correct=None, finish_reason="", tokens=0),
        some("x", "y", flags=["truncated", "wrong"], non_finite={"reward": "NaN"}, own_id="an id of before"),
        some("x", rewards={"lone \ud800": "Infinity"}) + some("-", "y", rewards={"b": -0.0, "a": None})[1:],
        some("x", "y", turns=[{"tool": "calculator", "call": [0, 1], "seconds": 0.25}]),
        some("0", rewards={"a": 0.0}) + some("-", "1", rewards={"a": -0.0})[1:],
    ],
)
def test_what_is_packed_comes_back(completions):
    found = decode(GROUP, encode(completions))
    assert found == completions
    assert repr(found) == repr(completions)  # 0.0 equals -0.0, and 1 True


def test_a_block_keeps_every_bit_of_a_number():
    values = [5e-324, 0.1 + 0.2, 1 / 3, math.pi * 1e300, 0.7071067690849304]
    completions = [one._replace(reward=value) for one, value in zip(some(*"abcde"), values, strict=True)]
    assert [one.reward for one in decode(GROUP, encode(completions))] == values


def test_any_changed_byte_is_found():
    block = encode(some("what", "it", "holds"))
    for place in range(len(block)):
        changed = block[:place] + bytes([block[place] ^ 0x20]) + block[place + 1 :]
        with pytest.raises(CompletionsDamaged):
            decode(GROUP, changed)
    for end in range(len(block)):
        with pytest.raises(CompletionsDamaged):
            decode(GROUP, block[:end])


def test_columns_that_are_nested_without_end_are_damage():
    content = b"[" * 5_000 + b"\n"
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    with pytest.raises(CompletionsDamaged, match="its columns cannot be read"):
        decode(GROUP, b"\1" + frame)


def test_a_block_of_a_newer_version_says_so():
    with pytest.raises(CompletionsDamaged, match="its version is 2, expected 1"):
        decode(GROUP, b"\2" + encode(some("x"))[1:])


def test_an_id_is_that_of_the_group_with_the_position_added():
    # The last ten characters count in base 32: "zy" is 31 * 32 + 30, one more is "zz", then the carry.
    assert [id_at(GROUP, position)[-4:] for position in (0, 1, 2, 34)] == ["00zy", "00zz", "0100", "0110"]


@pytest.fixture
def run(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        for step in range(1, 5):
            make_group(session, run, step=step, completions=(MadeCompletion(text=HOSTILE), MadeCompletion()))
        make_group(session, run, step=5, kind="eval")
    list(index_groups(database.sessions))
    return run


def into_rows(database, **changed):
    """Store every completion as earlier versions did."""
    with database.sessions.begin() as session:
        rows = [
            {
                **{name: getattr(one, name) for name in ("group_id", "position", "clean_text", "reward")},
                **{name: getattr(one, name) for name in ("advantage", "tokens", "finish_reason", "correct")},
                **{name: getattr(one, name) for name in ("rewards", "flags", "turns", "non_finite")},
                "id": changed["new_id"]() if "new_id" in changed else one.id,
                "text": pack_text(one.text),
            }
            for one in stored_completions(session)
        ]
        session.execute(insert(Rollout), rows)
        session.execute(update(RolloutGroup).values(completions=None))


def shown(client, run):
    """Everything that the completions of a run are shown as."""
    groups = client.get("/api/v1/rollouts", params={"run": run.id, "limit": 200}).json()
    ids = [one["id"] for group in groups["items"] for one in group["completions"]]
    assert len(ids) == 10
    found = client.get("/api/v1/rollouts/search", params={"runs": run.id, "q": "`</script>`"}).json()
    assert len(found["items"]) == 4
    rows = client.get("/api/v1/rollouts/search/export", params={"runs": run.id, "q": ""})
    return groups, found, rows.text, [client.get(f"/api/v1/rollouts/{each}/tokens").json() for each in ids]


def rows_left(database):
    with database.sessions() as session:
        return session.scalar(select(func.count()).select_from(Rollout))


def test_rows_of_before_are_read_as_blocks_are_and_packed_in_the_background(client, database, run):
    as_blocks = shown(client, run)
    into_rows(database)
    assert rows_left(database) == 10
    assert shown(client, run) == as_blocks
    list(convert(database.sessions))
    assert rows_left(database) == 0
    assert shown(client, run) == as_blocks
    with database.sessions() as session:
        assert not is_unconverted(session)
        assert session.scalars(select(RolloutAlias)).all() == []


def test_rows_are_indexed_for_search_and_forgotten_again(client, database, run):
    from backend.runs.deletion import _pieces

    into_rows(database)
    with database.engine.begin() as connection:
        reset(connection)
    list(index_groups(database.sessions))
    list(convert(database.sessions))
    assert len(shown(client, run)[1]["items"]) == 4
    list(_pieces(database.sessions, run.id))
    assert rows_left(database) == 0
    if database.engine.dialect.name == "sqlite":
        with database.sessions() as session:
            hits = text("SELECT count(*) FROM rollout_words WHERE rollout_words MATCH 'script'")
            assert session.scalar(hits) == 0


def test_ids_that_follow_from_nothing_are_kept_with_their_labels(client, database, run):
    into_rows(database, new_id=new_id)
    with database.sessions.begin() as session:
        ids = sorted(session.scalars(select(Rollout.id)))
        put_label(session, ids[0], LabelRequest(label="weird"), "operator")
    list(convert(database.sessions))
    assert rows_left(database) == 0
    with database.sessions() as session:
        assert sorted(one.id for one in stored_completions(session)) == ids
        assert [completion_named(session, each).id for each in ids] == ids
        assert session.scalars(select(RolloutLabel.rollout_id)).all() == [ids[0]]
    labelled = client.get("/api/v1/rollouts/search", params={"runs": run.id, "label": "weird"}).json()
    assert [each["id"] for each in labelled["items"]] == [ids[0]]


def test_a_conversion_that_ends_in_the_middle_goes_on_where_it_ended(client, database, run, monkeypatch):
    before = shown(client, run)
    into_rows(database)
    monkeypatch.setattr(conversion, "GROUPS_AT_ONCE", 2)
    next(convert(database.sessions))
    assert rows_left(database) == 6
    assert shown(client, run) == before
    assert len(list(convert(database.sessions))) == 2
    assert rows_left(database) == 0
    assert shown(client, run) == before


def test_a_commit_that_fails_loses_nothing(client, database, run):
    before = shown(client, run)
    into_rows(database)

    def refuse(connection):
        raise OperationalError("COMMIT", {}, Exception("disk full"))

    event.listen(database.engine, "commit", refuse)
    assert list(convert(database.sessions)) == []
    event.remove(database.engine, "commit", refuse)
    assert rows_left(database) == 10
    list(convert(database.sessions))
    assert shown(client, run) == before


def test_a_disk_that_fills_leaves_every_completion_where_it_is(client, database, run):
    if database.engine.dialect.name != "sqlite":
        pytest.skip("SQLite can be told how large its file may become")
    large = tuple(MadeCompletion(text="".join(new_id() for _ in range(2_000))) for _ in "ab")
    with database.sessions.begin() as session:  # they need new pages
        make_group(session, run, step=6, tokens=False, completions=large)
    with database.sessions() as session:
        before = {one.id: one for one in stored_completions(session)}
    into_rows(database)
    with closing(sqlite3.connect(database.engine.url.database)) as connection:
        connection.execute("VACUUM")  # no page is free

    def small(connection, _record, _proxy):
        connection.execute("PRAGMA max_page_count = 1")  # the file may not grow

    event.listen(database.engine, "checkout", small)
    assert list(convert(database.sessions)) == []
    event.remove(database.engine, "checkout", small)
    assert rows_left(database) == 12
    with database.sessions() as session:
        assert {one.id: one for one in stored_completions(session)} == before


def test_a_reader_in_the_middle_of_a_conversion_misses_nothing(database, run, monkeypatch):
    from backend.db import completions

    into_rows(database)
    with database.sessions() as session:
        ids = session.scalars(select(RolloutGroup.id)).all()
        before = completions_of(session, ids)
    real = completions.of_rows

    def behind_the_conversion(session, groups):
        monkeypatch.setattr(completions, "of_rows", real)
        list(convert(database.sessions))
        return real(session, groups)

    monkeypatch.setattr(completions, "of_rows", behind_the_conversion)
    with database.sessions() as session:
        session.connection(execution_options={"read_only": True})
        assert completions_of(session, ids) == before
    assert rows_left(database) == 0


def test_a_group_that_cannot_be_packed_stays_as_it_is_and_the_others_do_not(database, run):
    into_rows(database)
    with database.sessions.begin() as session:
        damaged = session.scalars(select(Rollout.group_id).order_by(Rollout.group_id)).first()
        first = Rollout.group_id == damaged, Rollout.position == 0
        session.execute(delete(Rollout).where(*first))  # the others have no place to be packed at
    list(convert(database.sessions))
    assert rows_left(database) == 1


@pytest.mark.parametrize("position", [0, 1])
def test_a_group_with_a_damaged_row_stays_in_rows_wherever_the_row_is(database, run, position):
    into_rows(database)
    with database.sessions.begin() as session:
        damaged = session.scalars(select(Rollout.group_id).order_by(Rollout.group_id)).first()
        one = Rollout.group_id == damaged, Rollout.position == position
        content = session.scalar(select(Rollout.text).where(*one))
        session.execute(update(Rollout).where(*one).values(text=content[:-3]))
    list(convert(database.sessions))
    with database.sessions() as session:
        left = session.execute(select(Rollout.group_id, Rollout.position).order_by(Rollout.position)).all()
        assert left == [(damaged, 0), (damaged, 1)]
        assert session.scalar(select(RolloutGroup.completions).where(RolloutGroup.id == damaged)) is None


def test_a_row_whose_text_unpacks_to_more_than_any_text_is_damaged(database, run):
    into_rows(database)
    with database.sessions.begin() as session:
        one = session.scalars(select(Rollout).order_by(Rollout.group_id, Rollout.position)).first()
        one.text = pack_text("x" * (LIMIT_TEXT_BYTES + 1))
        group = one.group_id
    with database.sessions() as session:
        assert [one.position for one in completions_of(session, [group])[group]] == [1]
    assert "its text says that it holds 67108865 bytes" in damage_of(group)


def test_a_damaged_group_is_named_and_the_rest_is_read(client, database, run):
    with database.sessions.begin() as session:
        groups = session.scalars(select(RolloutGroup.id).order_by(RolloutGroup.step)).all()
        block = session.scalar(select(RolloutGroup.completions).where(RolloutGroup.id == groups[0]))
        broken = block[:-9] + bytes([block[-9] ^ 1]) + block[-8:]
        session.execute(update(RolloutGroup).where(RolloutGroup.id == groups[0]).values(completions=broken))
    items = client.get("/api/v1/rollouts", params={"run": run.id}).json()["items"]
    assert [len(group["completions"]) for group in items] == [0, 2, 2, 2, 2]
    assert [bool(group["damage"]) for group in items] == [True, False, False, False, False]
    assert damage_of(groups[0]) == items[0]["damage"]
    found = client.get("/api/v1/rollouts/search", params={"runs": run.id, "q": "`</script>`"}).json()
    assert [each["step"] for each in found["items"]] == [2, 3, 4]
    assert client.get(f"/api/v1/rollouts/{groups[0]}/tokens").status_code == 404
    with database.sessions.begin() as session:
        session.execute(update(RolloutGroup).where(RolloutGroup.id == groups[0]).values(completions=block))
    items = client.get("/api/v1/rollouts", params={"run": run.id, "step": 1}).json()["items"]
    assert (len(items[0]["completions"]), items[0]["damage"]) == (2, "")


@pytest.mark.parametrize("name", ["x", "\0", "0" * 26, "é" * 26, "01HZZZZZZZ00000100000000ZY"])
def test_an_id_that_nothing_has_finds_nothing(database, run, name):
    with database.sessions() as session:
        assert completion_named(session, name) is None


def test_ids_behind_the_last_completion_of_a_group_find_nothing(database, run):
    with database.sessions() as session:
        last = stored_completions(session, RolloutGroup.step == 1)[-1]
        assert completion_named(session, last.id) == last
        assert completion_named(session, id_at(last.group_id, 2)) is None


def test_the_doctor_and_a_backup_name_a_damaged_group(database, run):
    with database.sessions.begin() as session:
        assert doctor_of_completions(session).is_good
        first = session.scalars(select(RolloutGroup.id).order_by(RolloutGroup.step)).first()
        session.execute(update(RolloutGroup).where(RolloutGroup.id == first).values(completions=b"\1broken"))
        found = doctor_of_completions(session)
        assert not found.is_good
        [sentence] = damaged_groups(session)
    assert sentence.startswith(f"run {run.id}, step 1, train, prompt 0: the block that holds its completions")
