"""Tests of the search in completions, lift and labels, on both databases."""

import pytest
from sqlalchemy import select, text

from backend.rollouts.search import pages as search_pages
from backend.rollouts.store import pack_groups, write_groups
from backend.storage.models import RolloutLabel
from backend.storage.rollout_words import MAX_WORD_POSITION, index_groups, make_tsvector
from tests.factories import MadeCompletion, MadeGroup, make_attempt, make_run, stored_completions
from tests.gate import first_in_gate

pytestmark = pytest.mark.both_databases

COMPLETION_TEXTS = (
    "Wait, let me check: 1+1=2, so \\boxed{2}.",
    "wait but the answer is <b>forty two</b>",
    "I don't know; waiting for Godot",
    "PASS pass \u202ehidden\u200b words",
)


def update_index(database):
    for _ in index_groups(database.sessions):
        pass


@pytest.fixture(autouse=True)
def unlimited_time(monkeypatch):
    """Let a search read everything, however busy this machine is."""
    monkeypatch.setattr(search_pages, "TIME_BUDGET_SECONDS", 1e9)


@pytest.fixture
def run(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        for step in (1, 2):
            completions = [
                MadeCompletion(
                    text=completion_text,
                    reward=float(index),
                    correct=index % 2 == 0,
                    flags=("odd",) if index == 3 else (),
                )
                for index, completion_text in enumerate(COMPLETION_TEXTS[: 2 * step])
            ]
            write_groups(session, pack_groups(run.id, step, 1, [MadeGroup(completions=tuple(completions))]))
    update_index(database)
    return run


def search_page(client, run, q="", **params):
    response = client.get("/api/v1/rollouts/search", params={"runs": run.id, "q": q, **params})
    assert response.status_code == 200, response.text
    return response.json()


def match_positions(page):
    return [(item["step"], item["position"]) for item in page["items"]]


@pytest.mark.parametrize(
    ("q", "positions"),
    [
        ("wait", [0, 1]),
        ("WAIT", [0, 1]),
        ("wait*", [0, 1, 2]),
        ("wait -but", [0]),
        ("-wait", [2, 3]),
        ('"let me check"', [0]),
        ('"me let"', []),
        ('"forty t*"', [1]),
        ("don't", [2]),
        ("1+1=2", [0]),
        ("\\boxed{2}", [0]),
        ("`boxed{2}`", [0]),
        ("`boxed{`", [0]),
        ("`{2`", [0]),
        ("`Boxed`", []),
        ("`<b>forty`", [1]),
        ("-`<b>`", [0, 2, 3]),
        ('wait* -"forty two" -godot', [0]),
        ("pass hidden", [3]),
        ("or", []),
        ("NEAR", []),
        ("words:x", []),
    ],
)
def test_a_search_finds_words_phrases_prefixes_and_exact_strings(client, run, q, positions):
    assert match_positions(search_page(client, run, q, first_step=2)) == [
        (2, position) for position in positions
    ]


def test_a_search_is_narrowed_by_step_reward_flag_correct_and_kind(client, run):
    assert match_positions(search_page(client, run, "wait*")) == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert match_positions(search_page(client, run, "wait*", sort="-step", limit=2)) == [(2, 2), (2, 1)]
    assert match_positions(search_page(client, run, "wait*", last_step=1)) == [(1, 0), (1, 1)]
    assert match_positions(search_page(client, run, "wait*", min_reward=1, max_reward=1)) == [(1, 1), (2, 1)]
    assert match_positions(search_page(client, run, "wait*", correct=True)) == [(1, 0), (2, 0), (2, 2)]
    assert match_positions(search_page(client, run, "pass", flag="odd")) == [(2, 3)]
    assert match_positions(search_page(client, run, flag="odd")) == [(2, 3)]
    assert match_positions(search_page(client, run, "wait", kind="eval")) == []


def test_pages_follow_each_other_without_a_gap(client, run):
    matches: list[tuple[int, int]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = search_page(client, run, "wait*", limit=2, cursor=cursor)
        matches += match_positions(page)
        cursor = page["next"]
    assert matches == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


def match_counts(client, run, q="", **params):
    document = client.get("/api/v1/rollouts/search/steps", params={"runs": run.id, "q": q, **params}).json()
    return [(row["step"], row["matched"], row["of"]) for row in document["items"]], document["every"]


def test_counts_over_steps_include_their_totals(client, run):
    assert match_counts(client, run, "wait*") == ([(1, 2, 2), (2, 3, 4)], 1)
    assert match_counts(client, run, "wait*", flag="odd") == ([(1, 0, 2), (2, 0, 4)], 1)
    assert match_counts(client, run, correct=True) == ([(1, 1, 2), (2, 2, 4)], 1)
    assert match_counts(client, run, "wait", kind="eval") == ([], 1)


@pytest.fixture
def many_groups(database, monkeypatch):
    """Eighteen groups of two runs in turn, with bounds so small that their words count as common."""
    monkeypatch.setattr(search_pages, "RARE_MATCH_LIMIT", 3)
    monkeypatch.setattr(search_pages, "INITIAL_BATCH_SIZE", 3)
    monkeypatch.setattr(search_pages, "MAX_BATCH_SIZE", 8)
    with database.sessions.begin() as session:
        runs = [make_run(session) for _ in range(2)]
        for step in range(1, 10):
            for run in runs:
                texts = [MadeCompletion(text=f"common {step} {'odd' if step % 3 else 'third'} `x{step}`")] * 2
                write_groups(session, pack_groups(run.id, step, 1, [MadeGroup(completions=tuple(texts))]))
    update_index(database)
    return runs


@pytest.mark.parametrize("sort", first_in_gate(1, ["-step", "step"]))
@pytest.mark.parametrize(
    "q", ["common", "third", '"common 7"', "comm*", "-third", "`odd `", "common -odd", ""]
)
def test_common_words_are_found_over_several_pages(client, many_groups, monkeypatch, q, sort):
    monkeypatch.setattr(search_pages, "TIME_BUDGET_SECONDS", 0.0)
    matches = {
        '"common 7"': lambda step: step == 7,
        "third": lambda step: step % 3 == 0,
        "common -odd": lambda step: step % 3 == 0,
        "-third": lambda step: step % 3,
        "`odd `": lambda step: step % 3,
    }.get(q, lambda step: step)
    positions: list[tuple[int, int]] = []
    cursor: str | None = ""
    pages = 0
    while cursor is not None:
        page = search_page(client, many_groups[1], q, sort=sort, limit=5, cursor=cursor)
        assert len(page["items"]) <= 5
        assert page["searched_to"] is None or page["next"] is not None
        positions += match_positions(page)
        cursor, pages = page["next"], pages + 1
    expected = [(step, index) for step in range(1, 10) if matches(step) for index in (0, 1)]
    assert positions == sorted(expected, reverse=sort == "-step")
    assert pages >= len(expected) // 5


def test_a_page_that_runs_out_of_time_reports_its_progress(client, many_groups, monkeypatch):
    monkeypatch.setattr(search_pages, "TIME_BUDGET_SECONDS", 0.0)
    page = search_page(client, many_groups[0], "`nowhere`")
    assert (page["items"], page["searched_to"]) == ([], 3)
    assert page["next"]


def test_a_snippet_marks_matches_by_offsets_and_keeps_hostile_text(client, run):
    snippet = search_page(client, run, '"forty two"')["items"][0]["snippet"]
    assert snippet["text"] == COMPLETION_TEXTS[1]
    assert [snippet["text"][a:b] for a, b in snippet["marks"]] == ["forty two"]
    assert search_page(client, run, "hidden")["items"][0]["snippet"]["text"] == COMPLETION_TEXTS[3]


UNREADABLE_QUERIES = [
    ('a "b', 2),
    ("a `b", 2),
    ("``", 0),
    ("a ?!", 2),
    ('""', 0),
    ("-", 0),
    ("a - b", 2),
    ("a" * 10_000, 1_000),
    ("*", 0),
    (" ".join("a" * 21), 40),
]


def test_an_unreadable_search_points_at_its_character(client, run):
    for q, position in UNREADABLE_QUERIES:
        response = client.get("/api/v1/rollouts/search", params={"runs": run.id, "q": q})
        assert response.status_code == 422, response.text
        assert [error["position"] for error in response.json()["errors"]] == [position], q[:80]


HOSTILE_QUERIES = (
    *(
        "a AND",
        "NOT",
        "(",
        "a OR b)",
        "{x}:y",
        "^a",
        "a NEAR(b)",
        "'",
        "a'b",
        "\\",
        "%",
        "_a_",
        "<->",
        "a:*b",
    ),
    *(
        "a&b|!c",
        "\u202ea",
        "e\u0301*",
        "a\u200bb",
        "\U0001d518*",
        "-a -b -c",
        '"a" "b"*',
        "日本語*",
        "ﬁ",
        "İ",
    ),
)


@pytest.mark.parametrize("path", ["search", "search/steps"])
def test_a_hostile_search_returns_results_or_a_clear_error(client, run, path):
    for q in HOSTILE_QUERIES:
        response = client.get(f"/api/v1/rollouts/{path}", params={"runs": run.id, "q": q})
        assert response.status_code in (200, 422), (q, response.text)
        if response.status_code == 422:
            assert response.json()["errors"][0]["position"] is not None, q


def test_rows_hidden_by_a_later_attempt_are_not_found(client, database, run):
    with database.sessions.begin() as session:
        make_attempt(session, run, 1, from_step=-1)
        make_attempt(session, run, 2, from_step=1)
    assert match_positions(search_page(client, run, "wait*")) == [(1, 0), (1, 1)]


def test_deleted_groups_are_removed_from_the_index(client, database, run, settings):
    from backend.runs.deletion import _remove_in_batches

    list(_remove_in_batches(database.sessions, run.id))
    with database.sessions.begin() as session:
        other_run = make_run(session)
        write_groups(session, pack_groups(other_run.id, 1, 1, [MadeGroup()]))
    update_index(database)
    assert match_positions(search_page(client, other_run, "wait*")) == []
    assert match_positions(search_page(client, other_run, "idea")) == [(1, 1)]
    with database.sessions() as session:
        if database.engine.dialect.name == "sqlite":
            query = "SELECT count(*) FROM rollout_words WHERE rollout_words MATCH 'wait'"
            assert session.scalar(text(query)) == 0
        else:
            assert session.scalar(text("SELECT count(*) FROM rollout_words")) == 2


def test_a_long_completion_is_indexed_from_its_first_word_to_its_last(client, database, run):
    long_text = "begin " + "the word " * 20_000 + "the very end"
    with database.sessions.begin() as session:
        write_groups(
            session, pack_groups(run.id, 7, 1, [MadeGroup(completions=(MadeCompletion(text=long_text),))])
        )
    update_index(database)
    assert make_tsvector(long_text)["is_long"]
    assert len(long_text.split()) > MAX_WORD_POSITION
    for q in ("end", '"the very end"', '"very e*"', '"begin the word"', "`very end`"):
        assert match_positions(search_page(client, run, q)) == [(7, 0)], q
    assert match_positions(search_page(client, run, '"very the end"')) == []


def test_lift_ranks_phrases_that_became_more_frequent(client, database, run):
    with database.sessions.begin() as session:
        for step in range(20, 30):
            texts = ["so the answer is", "the answer is plain"]
            if step >= 25:
                texts = [f"{text} I have verified this" for text in texts]
            completions = tuple(MadeCompletion(text=text, correct=step >= 25) for text in texts)
            write_groups(session, pack_groups(run.id, step, 1, [MadeGroup(completions=completions)]))
    params = {"runs": run.id, "first_step": 20, "by": "steps", "a_last": 24, "b_first": 25}
    response = client.get("/api/v1/rollouts/lift", params=params)
    assert response.status_code == 200, response.text
    phrases = response.json()
    assert (phrases["a"]["completions"], phrases["b"]["completions"]) == (10, 10)
    first = phrases["items"][0]
    assert (first["phrase"], first["a"], first["b"]) == ("i have verified this", 0, 10)
    assert phrases["fell"] == []
    by_right = client.get("/api/v1/rollouts/lift", params={**params, "by": "correct"}).json()
    assert by_right["items"][0]["phrase"] == "i have verified this"


def load_rollout_id(database):
    with database.sessions() as session:
        return stored_completions(session)[0].id


def test_a_label_is_given_changed_and_removed_by_its_version(client, database, run):
    path = f"/api/v1/rollouts/{load_rollout_id(database)}/labels"
    labels = client.post(path, json={"label": " hacked ", "note": "prints the tests"}).json()["items"]
    assert [(label["label"], label["note"], label["role"], label["version"]) for label in labels] == [
        ("hacked", "prints the tests", "operator", 1)
    ]
    assert client.post(path, json={"label": "hacked", "note": "mine"}).status_code == 409
    changed_labels = client.post(path, json={"label": "hacked", "note": "sure", "version": 1}).json()["items"]
    assert (changed_labels[0]["note"], changed_labels[0]["version"]) == ("sure", 2)
    late_response = client.post(path, json={"label": "hacked", "note": "late", "version": 1})
    assert late_response.status_code == 409
    assert "version 2" in late_response.json()["detail"]
    assert client.post(path, json={"label": "good"}).status_code == 200
    assert len(match_positions(search_page(client, run, label="hacked"))) == 1
    counts = client.get("/api/v1/rollouts/labels", params={"runs": run.id}).json()["items"]
    assert counts == [{"label": "good", "completions": 1}, {"label": "hacked", "completions": 1}]
    assert client.delete(path, params={"label": "hacked", "version": 1}).status_code == 409
    remaining_labels = client.delete(path, params={"label": "hacked", "version": 2}).json()["items"]
    assert [label["label"] for label in remaining_labels] == ["good"]


@pytest.mark.parametrize(
    "body",
    [
        {"label": ""},
        {"label": "  "},
        {"label": "x" * 41},
        {"label": "a\0"},
        {"label": "a", "note": "x" * 2_001},
        {"label": "a", "version": -1},
        {"label": "a", "role": "viewer"},
    ],
)
def test_a_bad_label_is_refused(client, database, run, body):
    assert client.post(f"/api/v1/rollouts/{load_rollout_id(database)}/labels", json=body).status_code == 422


def test_labels_are_deleted_with_their_completion(client, database, run):
    client.post(f"/api/v1/rollouts/{load_rollout_id(database)}/labels", json={"label": "good"})
    with database.sessions.begin() as session:
        session.execute(text("DELETE FROM rollout_group"))
    with database.sessions() as session:
        assert session.scalars(select(RolloutLabel)).all() == []


def test_a_selection_is_exported_and_its_judgements_are_imported(client, database, run):
    import io

    import orjson
    import pyarrow.parquet as pq

    params = {"runs": run.id, "q": "wait*"}
    lines = client.get("/api/v1/rollouts/search/export", params=params).content.splitlines()
    rows = [orjson.loads(line) for line in lines]
    assert [(row["step"], row["position"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert rows[0]["text"] == COMPLETION_TEXTS[0]
    judgements = [{"rollout": row["rollout"], "label": "weird", "note": "n"} for row in rows]
    bad_rows = [b"{", b'{"rollout":"nobody","label":"x"}', b'{"label":"x"}']
    body = b"\n".join([*map(orjson.dumps, judgements), *bad_rows])
    report = client.post("/api/v1/rollouts/labels/import", content=body).json()
    assert (report["rows"], report["stored"], report["refused_rows"]) == (8, 5, 3)
    assert [refusal["row"] for refusal in report["refused"]] == [6, 7, 8]
    second_report = client.post("/api/v1/rollouts/labels/import", content=body).json()
    assert (second_report["stored"], second_report["unchanged"]) == (0, 5)
    response = client.get("/api/v1/rollouts/search/export", params={**params, "file": "parquet"})
    table = pq.read_table(io.BytesIO(response.content)).to_pylist()
    assert [row["rollout"] for row in table] == [row["rollout"] for row in rows]
    assert orjson.loads(table[0]["labels"]) == [{"label": "weird", "note": "n", "by": "import"}]
