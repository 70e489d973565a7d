"""Tests of the turns of stored completions: blocks of text, observed tokens, and turns from archives."""

import pytest

from backend.rollouts.turns import read_turns, split_into_blocks

TURN = {
    "tool": "calculator",
    "outcome": "ok",
    "seconds": 0.5,
    "is_cut": False,
    "call": [2, 5],
    "observation": [5, 7],
    "tokens": [4, 6],
}


def blocks(text, turns):
    return [(block["kind"], block["text"]) for block in split_into_blocks(text, turns)]


def test_the_blocks_of_a_text_join_to_the_text():
    assert blocks("ab[c]12d", [TURN]) == [
        ("own", "ab"),
        ("call", "[c]"),
        ("observation", "12"),
        ("own", "d"),
    ]
    assert blocks("[c]", [TURN | {"call": [0, 3], "observation": [3, 3]}]) == [("call", "[c]")]
    assert blocks("ab", []) == []


def test_a_turn_is_restored_from_an_archive():
    assert read_turns([TURN], "ab[c]12d", 8) == [TURN]
    assert read_turns([], "", 0) == []


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "<b>"},
        {"tool": "x" * 65},
        {"tool": "\x1b"},
        {"tool": 1},
        {"seconds": float("nan")},
        {"seconds": True},
        {"call": [3, 2]},
        {"call": [0, 99]},
        {"call": [0, 6]},
        {"call": "02"},
        {"observation": [-1, 7]},
        {"tokens": [4, 9]},
        {"tokens": [True, 6]},
    ],
)
def test_inconsistent_turns_are_refused(change):
    with pytest.raises(ValueError, match="turn"):
        read_turns([TURN | change], "ab[c]12d", 8)


def test_anything_but_a_list_of_turns_is_refused():
    for document in ({}, [[]], [None], [TURN] * 1001, [TURN, TURN]):
        with pytest.raises(ValueError, match="turn"):
            read_turns(document, "ab[c]12d", 8)
