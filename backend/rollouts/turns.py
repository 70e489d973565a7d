"""Turns of a completion: its tool calls and the answers of the tools, by position in the text.

They are stored with the text as a list of {"tool", "outcome", "seconds", "is_cut", "call", "observation",
"tokens"}. `call` and `observation` are start and end offsets in characters, and `tokens` is the token range
of the observation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

OUTCOMES = ("ok", "failed", "timeout", "killed", "unanswered", "done", "lost")
MAX_TURNS = 1000
MAX_NAME = 64


def split_into_blocks(text: str, turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the text as consecutive own, call and observation blocks; empty if there are no turns."""
    return list(_blocks(text, turns)) if turns else []


def _blocks(text: str, turns: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    position = 0
    for turn in turns:
        for kind in ("call", "observation"):
            first, end = turn[kind]
            if first > position:
                yield {"kind": "own", "text": text[position:first], "turn": None}
            if end > first or kind == "call":
                yield {"kind": kind, "text": text[first:end], "turn": _turn_summary(turn)}
            position = max(position, end)
    if position < len(text):
        yield {"kind": "own", "text": text[position:], "turn": None}


def _turn_summary(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {name: turn[name] for name in ("tool", "outcome", "seconds", "is_cut")}


def observation_mask(turns: Sequence[Mapping[str, Any]], count: int) -> list[int]:
    """Return a list of length `count` with 1 for each token that belongs to a tool's answer, else 0."""
    mask = [0] * count
    for turn in turns:
        first, end = turn["tokens"]
        mask[first:end] = [1] * (min(end, count) - first)
    return mask


def read_turns(claimed_turns: Any, text: str, tokens: int) -> list[dict[str, Any]]:
    """Return turns from an archive; raise ValueError if they do not fit the text and its tokens."""
    if not isinstance(claimed_turns, list) or len(claimed_turns) > MAX_TURNS:
        raise ValueError("has turns that are no list")
    previous_end = 0
    checked_turns = []
    for turn in claimed_turns:
        checked_turn = _read_turn(turn, len(text), tokens)
        if checked_turn["call"][0] < previous_end or checked_turn["observation"][0] < checked_turn["call"][1]:
            raise ValueError("has turns that overlap")
        previous_end = checked_turn["observation"][1]
        checked_turns.append(checked_turn)
    return checked_turns


def _read_turn(turn: Any, characters: int, tokens: int) -> dict[str, Any]:
    if not isinstance(turn, dict) or turn.get("outcome") not in OUTCOMES:
        raise ValueError("has a turn without a known outcome")
    tool, seconds = turn.get("tool"), turn.get("seconds")
    if not isinstance(tool, str) or len(tool) > MAX_NAME or "\0" in tool or not tool.isprintable():
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


def _span(span: Any, limit: int) -> list[int]:
    if not isinstance(span, list) or len(span) != 2 or not all(type(bound) is int for bound in span):
        raise ValueError("has a turn without its place")
    if not 0 <= span[0] <= span[1] <= limit:
        raise ValueError("has a turn outside of its text")
    return span
