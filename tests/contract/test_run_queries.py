"""Tests of queries of the run list on both databases, against a plain Python evaluator and by hand."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Select, select

from backend.runs.list import RunFilter, run_ids
from backend.runs.query.conditions import make_condition
from backend.runs.query.syntax import (
    MAX_CHARACTERS,
    MAX_COMPARISONS,
    MAX_DEPTH,
    MAX_VALUES,
    QueryError,
    parse,
)
from backend.storage.models import MetricKey, Run
from tests.factories import make_experiment, make_run

pytestmark = pytest.mark.both_databases

WORDS = ["otter", "Otter-2", "dapo", "50%", "a_b", "back\\slash", 'say "hi"', "it's", "日本", "x" * 40]
NUMBERS = [0.0, 0.5, 1 / 3, -2.5, 1e-6, 3.0, 1e300]
NONFINITE_VALUES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
LEARNING_RATES = [1e-6, 3e-4, 0.1, None, "auto", True, ["a", "otter"], "absent"]
COMPARISON_BY_OPERATOR: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True)
class Row:
    """A run as the plain evaluator sees it."""

    id: str
    name: str
    variant: str
    experiment: str | None
    seed: int
    tags: list[str]
    verdict: str | None
    lr: Any
    last: dict[str, Any]
    best: float | None
    created: float


def numbers(rng: random.Random) -> Any:
    return rng.choice([*NUMBERS, *NONFINITE_VALUES])


def stored_rows(session, rng: random.Random, count: int) -> list[Row]:
    """Store random runs and return them as rows for the evaluator."""
    for name in ("reward/mean", "eval/accuracy", "odd name"):
        session.add(MetricKey(name=name))
    experiment = make_experiment(session, name="Sweep otter")
    rows = []
    for _ in range(count):
        last = {
            name: numbers(rng) for name in ("reward/mean", "eval/accuracy", "odd name") if rng.random() < 0.6
        }
        best = rng.choice([None, *NUMBERS])
        lr = rng.choice(LEARNING_RATES)
        row = Row(
            id="",
            name=rng.choice(WORDS),
            variant=rng.choice(["grpo", "dapo", ""]),
            experiment=rng.choice([None, experiment.name]),
            seed=rng.randint(0, 4),
            tags=rng.sample(["old", "baseline", "a,b", ",", 'q"', "日本"], rng.randint(0, 3)),
            verdict=rng.choice([None, "healthy", "collapsed", "never_learned", "inconclusive"]),
            lr=lr,
            last=last,
            best=best,
            created=1_800_000_000.0 + rng.randint(-3, 3) * 43_200,
        )
        run = make_run(
            session,
            name=row.name,
            variant=row.variant,
            experiment_id=experiment.id if row.experiment else None,
            seed=row.seed,
            tags=row.tags,
            verdict=row.verdict,
            created_at=row.created,
            summary={
                "step": 1,
                "last": last,
                "best": {} if best is None else {"eval/accuracy": {"value": best, "step": 1}},
            },
        )
        config = dict(run.config)
        optimizer = {key: setting for key, setting in config["optimizer"].items() if key != "lr"}
        run.config = config | {"optimizer": optimizer if lr == "absent" else optimizer | {"lr": lr}}
        session.flush()
        rows.append(Row(**{**row.__dict__, "id": run.id}))
    return rows


# A random query is a pair of its text and the function that returns whether a row matches.


def quote_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def contains(text: str | None, fragment: str) -> bool:
    return text is not None and fragment.lower() in text.lower()


def textual(field: str, get: Callable[[Row], str | None], words: list[str]):
    def make(operator: str, word: str):
        matches = {
            "=": lambda row: get(row) == word,
            "!=": lambda row: get(row) != word,
            "~": lambda row: contains(get(row), word),
            "!~": lambda row: not contains(get(row), word),
        }[operator]
        return f"{field} {operator} {quote_text(word)}", matches

    return st.builds(make, st.sampled_from(["=", "!=", "~", "!~"]), st.sampled_from(words))


def numeric(field: str, get: Callable[[Row], float | None]):
    def make(operator: str, number: float):
        def matches(row: Row) -> bool:
            field_value = get(row)
            return field_value is not None and COMPARISON_BY_OPERATOR[operator](field_value, number)

        return f"{field}{operator}{number!r}", matches

    return st.builds(make, st.sampled_from(list(COMPARISON_BY_OPERATOR)), st.sampled_from([*NUMBERS, 2.0]))


def spelled(value: Any) -> float | None:
    return NONFINITE_VALUES[value] if isinstance(value, str) else value


def config_number(row: Row) -> float | None:
    return row.lr if isinstance(row.lr, float) else None


def tagged(operator: str, tag: str):
    def matches(row: Row) -> bool:
        has_tag = any(row_tag == tag if "=" in operator else contains(row_tag, tag) for row_tag in row.tags)
        return has_tag != operator.startswith("!")

    return f"tag {operator} {quote_text(tag)}", matches


def created(operator: str, days: int):
    day = datetime.fromtimestamp(1_800_000_000, UTC).replace(hour=0, minute=0) + timedelta(days=days)
    day = day.replace(second=0, microsecond=0)
    start, end = day.timestamp(), day.timestamp() + 86_400
    matches = {
        "=": lambda row: start <= row.created < end,
        "<": lambda row: row.created < start,
        "<=": lambda row: row.created < end,
        ">": lambda row: row.created >= end,
        ">=": lambda row: row.created >= start,
    }[operator]
    return f"created {operator} {day:%Y-%m-%d}", matches


def fixed(text: str, matches: Callable[[Row], bool]):
    return st.just((text, matches))


def searched(word: str):
    return quote_text(word), lambda row: any(
        contains(field, word) for field in (row.name, row.variant, row.experiment)
    )


LEAVES = st.one_of(
    textual("name", lambda row: row.name, [*WORDS, "ott", "%", "_", "\\"]),
    textual("variant", lambda row: row.variant, ["dapo", "grpo", "po", ""]),
    textual("experiment", lambda row: row.experiment, ["Sweep otter", "OTTER", "none"]),
    textual("config.optimizer.lr", lambda row: row.lr if isinstance(row.lr, str) else None, ["auto"]).filter(
        lambda query: "~" not in query[0]
    ),
    numeric("seed", lambda row: float(row.seed)),
    numeric("reward/mean", lambda row: spelled(row.last.get("reward/mean"))),
    numeric("last(eval/accuracy)", lambda row: spelled(row.last.get("eval/accuracy"))),
    numeric('"odd name"', lambda row: spelled(row.last.get("odd name"))),
    numeric("best(eval/accuracy)", lambda row: row.best),
    numeric("lr", config_number),
    st.builds(
        tagged, st.sampled_from(["=", "!=", "~", "!~"]), st.sampled_from(["old", ",", "a,b", 'q"', "L"])
    ),
    st.builds(created, st.sampled_from(list(COMPARISON_BY_OPERATOR)), st.integers(-2, 2)),
    st.builds(searched, st.sampled_from([*WORDS, "sweep", "po"])),
    fixed("verdict = none", lambda row: row.verdict is None),
    fixed("verdict in (healthy, collapsed)", lambda row: row.verdict in ("healthy", "collapsed")),
    fixed('verdict = "Never learned"', lambda row: row.verdict == "never_learned"),
    fixed('verdict != "no verdict"', lambda row: row.verdict != "inconclusive"),
    fixed("seed not in (1, 2)", lambda row: row.seed not in (1, 2)),
    fixed("tag = none", lambda row: not row.tags),
    fixed("experiment != none", lambda row: row.experiment is not None),
    fixed("variant = none", lambda row: not row.variant),
    fixed("reward/mean = nan", lambda row: row.last.get("reward/mean") == "NaN"),
    fixed("reward/mean != -inf", lambda row: row.last.get("reward/mean") != "-Infinity"),
    fixed("reward/mean < inf", lambda row: float(row.last.get("reward/mean", "NaN")) < math.inf),
    fixed("reward/mean >= inf", lambda row: row.last.get("reward/mean") == "Infinity"),
    fixed("reward/mean > -inf", lambda row: float(row.last.get("reward/mean", "NaN")) > -math.inf),
    fixed("eval/accuracy = none", lambda row: "eval/accuracy" not in row.last),
    fixed("best(eval/accuracy) != none", lambda row: row.best is not None),
    fixed("lr = true", lambda row: row.lr is True),
    fixed("lr = none", lambda row: row.lr in (None, "absent")),
    fixed("config.optimizer.lr ~ OTT", lambda row: isinstance(row.lr, list)),
)


def join_conditions(connective: str, conditions):
    matches = {
        "and": lambda row: all(matches_part(row) for _, matches_part in conditions),
        " ": lambda row: all(matches_part(row) for _, matches_part in conditions),
        "or": lambda row: any(matches_part(row) for _, matches_part in conditions),
    }[connective]
    return "(" + f" {connective} ".join(text for text, _ in conditions) + ")", matches


QUERIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            join_conditions, st.sampled_from(["and", " ", "or"]), st.lists(inner, min_size=1, max_size=4)
        ),
        inner.map(lambda query: (f"not {query[0]}", lambda row: not query[1](row))),
        inner.map(lambda query: (f"NOT ( {query[0]})", lambda row: not query[1](row))),
    ),
    max_leaves=12,
)


def matching(session, text: str) -> Select[str]:
    condition = make_condition(session, text)
    assert condition is not None
    return select(Run.id).where(condition)


def test_a_random_query_finds_the_same_rows_as_a_plain_evaluator(session):
    rows = stored_rows(session, random.Random(5), 60)

    @settings(suppress_health_check=list(HealthCheck))
    @given(QUERIES)
    def agrees(query):
        text, matches = query
        selected_ids = set(session.scalars(matching(session, text)))
        assert selected_ids == {row.id for row in rows if matches(row)}, text

    agrees()


def test_a_query_and_its_negation_together_find_every_run_once(session):
    make_run(session, name="with", summary={"step": 1, "last": {"reward/mean": 0.7}, "best": {}})
    make_run(session, name="without")
    assert names(session, "reward/mean > .5") == ["with"]
    assert names(session, "not reward/mean > .5") == ["without"]
    assert names(session, "not reward/mean > .5 and reward/mean != none") == []
    assert names(session, "not not reward/mean > .5") == ["with"]


def names(session, query: str) -> list[str]:
    selected_ids = run_ids(session, RunFilter(query=query))
    return sorted(session.scalars(select(Run.name).where(Run.id.in_(selected_ids))))


def test_and_binds_tighter_than_or_and_adjacent_words_are_both_searched(session):
    for name in ("brave-otter", "brave-lynx", "calm-otter"):
        make_run(session, name=name)
    assert names(session, "brave otter") == ["brave-otter"]
    assert names(session, "calm or brave and lynx") == ["brave-lynx", "calm-otter"]
    assert names(session, "(calm or brave) and lynx") == ["brave-lynx"]
    assert names(session, "otter not calm") == ["brave-otter"]
    assert names(session, " ") == ["brave-lynx", "brave-otter", "calm-otter"]


UNREADABLE_QUERIES = [
    ("a and acuracy > .5", 6, "did you mean eval/accuracy"),
    ("eval/acuracy > .5", 0, "there is no field 'eval/acuracy'; did you mean eval/accuracy"),
    ("type = fixed", 0, "'type' is ambiguous: config.policy.adapter.type"),
    ("kl = k3", 0, "'kl' has several fields: config.objective.kl.type"),
    ("config.nothing = 3", 0, "there is no field 'config.nothing'"),
    ('config.a"b = 3', 8, "quotation mark is not closed"),
    ("config.a{b},c = 3", 11, "',' is not expected here"),
    ("status = runing", 9, "there is no status 'runing'; did you mean running?"),
    ("seed = three", 7, "seed is a number; got 'three'"),
    ('seed = "3"', 7, "seed is a number"),
    ("seed ~ 3", 5, "seed is compared with =, !=, <, <=, >, >= or in"),
    ("name < 3", 5, "name is compared with =, !=, ~, !~ or in"),
    ("created > yesterday", 10, "a date such as 2026-11-01"),
    ("created > 2026-13-01", 10, "a date such as 2026-11-01"),
    ("created = -7d", 10, "a time before now is compared with"),
    ("reward/mean > nan", 14, "nothing is smaller or larger than NaN"),
    ("min(reward/mean) > 1", 0, "there is no function 'min'; last(metric) and best(metric)"),
    ("best(reward/mean)", 17, "expected an operator"),
    ("(a or b", 7, "the parenthesis at character 1 is not closed"),
    ("a )", 2, "')' is not expected here"),
    ("name =", 6, "expected a value"),
    ("name in dapo", 8, "expected ( after in"),
    ("name in (dapo", 13, "expected ) or a comma"),
    ("name = 'dapo", 7, "quotation mark is not closed"),
    ("a and", 5, "expected a field or a word, got the end of the query"),
    ("or a", 0, "expected a field or a word, got 'or'"),
    ("a \0 b", 2, "contains NUL"),
    ("a \ud800", 2, "contains NUL or an unpaired surrogate"),
    ("x" * 100_000, MAX_CHARACTERS, "at most 2,000 characters, got 100,000"),
    ("(" * 900 + "a" + ")" * 900, MAX_DEPTH + 1, f"nested deeper than {MAX_DEPTH} levels"),
    ("not " * 400 + "a", 4 * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
    ("a " * 900, 2 * MAX_COMPARISONS, "at most 100 comparisons"),
]


def test_an_error_points_at_the_character(session):
    for query, position, phrase in UNREADABLE_QUERIES:
        with pytest.raises(QueryError) as error_info:
            make_condition(session, query)
        (error,) = error_info.value.errors
        assert (error.path, error.position) == ("query", position), query[:80]
        assert phrase in error.message, query[:80]


def test_a_query_at_the_limits_of_length_and_depth_is_answered(session):
    run = make_run(session, name="%" * 50)
    for query in (
        " ".join(["a"] * MAX_COMPARISONS),
        " or ".join(['not lr = "x"'] * MAX_COMPARISONS),
        "(" * MAX_DEPTH + "seed = 0" + ")" * MAX_DEPTH,
        "not " * MAX_DEPTH + "seed = 0",
        f"name ~ {quote_text('%' * 1_900)}",
        f"{'not ' * MAX_DEPTH}seed in ({','.join(['0'] * MAX_VALUES)})",
        f"lr not in ({','.join(['1'] * MAX_VALUES)})",
        f"tag in ({','.join(['1'] * MAX_VALUES)})",
        f"{'seed=0 or ' * (MAX_COMPARISONS - 16)}{'not (a ' * 15}tag in ({','.join(['1'] * 400)}){')' * 15}",
    ):
        session.scalars(matching(session, query)).all()
    assert names(session, f"name ~ {quote_text('%' * 50)}") == [run.name]
    assert names(session, "name ~ %a") == []


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused_at_one_of_its_characters(text):
    position = 0
    try:
        parse(text)
    except QueryError as error:
        position = error.position
    assert 0 <= position <= len(text)


def test_fields_of_other_trainers_are_found_by_their_path(session):
    make_run(session, name="own")
    foreign_run = make_run(session, name="foreign", origin="trl")
    foreign_run.config = {"args": {"beta": 0.04, "list": [{"name": "x"}]}}
    session.flush()
    assert names(session, "config.args.beta < .1") == ["foreign"]
    assert names(session, "config.args.list.0.name = x") == ["foreign"]
    assert names(session, "config.args != none") == ["foreign"]
    assert names(session, "origin = none and config.rewards ~ correct") == ["own"]


def test_names_outside_ascii_and_numeric_keys_are_found_on_both_databases(session):
    session.add(MetricKey(name="eval/größe"))
    summary = {"step": 1, "last": {"eval/größe": 0.5}, "best": {"eval/größe": {"value": 0.7, "step": 1}}}
    foreign_run = make_run(session, name="foreign", origin="trl", summary=summary)
    foreign_run.config = {
        "größe": 3,
        "😀": {"日本": "ja"},
        "files": ["Grüße.txt", "b"],
        "layers": {"0": {"lr": 0.1}},
        "maße": [{"länge": 7}],
    }
    make_run(session, name="own")
    session.flush()
    for query in (
        "eval/größe > 0.4",
        "best(eval/größe) > 0.6",
        "config.größe = 3",
        "config.😀.日本 = ja",
        "config.files ~ Grüße",
        'config.files ~ "b"',
        "config.layers.0.lr = 0.1",
        "config.maße.0.länge = 7",
    ):
        assert names(session, query) == ["foreign"], query
    assert names(session, "eval/größe = none") == ["own"]
    assert names(session, "config.files ~ größe") == []
