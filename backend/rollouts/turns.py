"""Turns of a completion: the calls of tools in it, and what they answered, by place in its text.

Stored beside the text as a list of {"tool", "outcome", "seconds", "is_cut", "call", "observation", "tokens"}:
first character and the one behind the last of the call and of the observation; `tokens` are those of the
observation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

OUTCOMES = ("ok", "failed", "timeout", "killed", "unanswered", "done", "lost")
MOST_TURNS = 1000
MOST_NAME = 64


def blocks(text: str, turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The text in blocks, in order and without a gap: own, call and observation; none without a turn."""
    return list(_blocks(text, turns)) if turns else []


def _blocks(text: str, turns: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    place = 0
    for turn in turns:
        for kind in ("call", "observation"):
            first, end = turn[kind]
            if first > place:
                yield {"kind": "own", "text": text[place:first], "turn": None}
            if end > first or kind == "call":
                yield {"kind": kind, "text": text[first:end], "turn": _said(turn)}
            place = max(place, end)
    if place < len(text):
        yield {"kind": "own", "text": text[place:], "turn": None}


def _said(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {name: turn[name] for name in ("tool", "outcome", "seconds", "is_cut")}


def observed(turns: Sequence[Mapping[str, Any]], count: int) -> list[int]:
    """A list of `count`: 1 for each token that a tool's answer put there."""
    found = [0] * count
    for turn in turns:
        first, end = turn["tokens"]
        found[first:end] = [1] * (min(end, count) - first)
    return found


def read_turns(said: Any, text: str, tokens: int) -> list[dict[str, Any]]:
    """Turns out of an archive; ValueError where they do not fit the text and its tokens."""
    if not isinstance(said, list) or len(said) > MOST_TURNS:
        raise ValueError("has turns that are no list")
    place = 0
    found = []
    for turn in said:
        one = _read_turn(turn, len(text), tokens)
        if one["call"][0] < place or one["observation"][0] < one["call"][1]:
            raise ValueError("has turns that overlap")
        place = one["observation"][1]
        found.append(one)
    return found


def _read_turn(turn: Any, characters: int, tokens: int) -> dict[str, Any]:
    if not isinstance(turn, dict) or turn.get("outcome") not in OUTCOMES:
        raise ValueError("has a turn without a known outcome")
    tool, seconds = turn.get("tool"), turn.get("seconds")
    if not isinstance(tool, str) or len(tool) > MOST_NAME or "\0" in tool or not tool.isprintable():
        raise ValueError("has a turn without the name of a tool")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError("has a turn without its seconds")
    return {
        "tool": tool,
        "outcome": turn["outcome"],
        "seconds": float(seconds),
        "is_cut": turn.get("is_cut") is True,
        "call": _span(turn.get("call"), characters),
        "observation": _span(turn.get("observation"), characters),
        "tokens": _span(turn.get("tokens"), tokens),
    }


def _span(said: Any, most: int) -> list[int]:
    if not isinstance(said, list) or len(said) != 2 or not all(type(each) is int for each in said):
        raise ValueError("has a turn without its place")
    if not 0 <= said[0] <= said[1] <= most:
        raise ValueError("has a turn outside of its text")
    return said
