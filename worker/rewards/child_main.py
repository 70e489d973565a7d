"""The checking process, `python -m worker.rewards.child_main`: reads requests, writes answers, a line each.

It imports no torch, and each library only when a request needs it.
"""

import importlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

MEMORY_BYTES = 4 * 2**30
GRACE_SECONDS = 2.0

Request = Mapping[str, Any]


def main() -> None:
    """Answer requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the libraries print must not reach the answers
    logging.disable(logging.CRITICAL)
    if "--trusted" not in sys.argv:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _send(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        # if the trainer is killed while this process hangs in C code, the default action of SIGALRM ends it
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE_SECONDS)
        _send(replies, answer(request))
        signal.setitimer(signal.ITIMER_REAL, 0)


def answer(request: Request) -> dict[str, Any]:
    """The value of a request, or what went wrong: anything can, when text is hostile or code a user's own."""
    try:
        return {"value": OPERATIONS[request["op"]](request)}
    except Exception as error:  # noqa: BLE001 - see above; the trainer decides what an error means
        return {"error": f"{type(error).__name__}: {error}"[:2000]}


def prepare(request: Request) -> None:
    """Import what an operation needs, so that its time limit is for its work alone."""
    match request["for"]:
        case "equal":
            importlib.import_module("worker.rewards.mathematics")
        case "plugin":
            importlib.import_module("worker.rewards.plugins").load_reward(request["entry_point"])
        case _:
            importlib.import_module("worker.problems.gym").library()


def equal_mathematics(request: Request) -> bool:
    """Whether `found` equals `expected` as mathematics, by math-verify."""
    from worker.rewards.mathematics import is_equal

    return is_equal(expected=request["expected"], found=request["found"])


def gym_question(request: Request) -> dict[str, str]:
    """Question and answer of a reasoning_gym task at a seed and an offset."""
    from worker.problems.gym import entry_at

    entry = entry_at(request["task"], request["config"], request["seed"], request["offset"])
    return {"question": entry["question"], "answer": str(entry["answer"] or "")}


def gym_score(request: Request) -> float:
    """The task's own score of an answer, 0..1."""
    from worker.problems.gym import score_at

    place = request["task"], request["config"], request["seed"], request["offset"]
    return score_at(*place, answer=request["found"])


def plugin_reward(request: Request) -> float | None:
    """The value of a user's own reward function."""
    from worker.rewards.plugins import call_reward

    return call_reward(request["entry_point"], request["prompt"], request["text"], request["params"])


OPERATIONS: dict[str, Callable[[Request], Any]] = {
    "prepare": prepare,
    "equal": equal_mathematics,
    "gym_question": gym_question,
    "gym_score": gym_score,
    "plugin": plugin_reward,
}


def _send(replies: Any, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
