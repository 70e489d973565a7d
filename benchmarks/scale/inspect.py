"""Measure the response times of a user who inspects a run of a million completions, over HTTP."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.common.service import Service
from benchmarks.scale.measure import Params, Request, measure_request
from benchmarks.scale.texts import RARE_WORD, SPREADING_PHRASE, TOKENS_EVERY_STEPS, FilledRollouts, Rollouts

SEARCH_QUERIES = {
    "a rare word": RARE_WORD,
    "a word of every completion": "think",
    "three common words": "think boxed the",
    "a phrase": f'"{SPREADING_PHRASE}"',
    "a prefix": "ba*",
    "a phrase with a prefix": '"so th*"',
    "an exact string": "`{42}`",
    "an exact string that is nowhere": "`, QQQ`",
    "a word that is not there": "think -the",
}

FILTER_PARAMETERS: dict[str, Params] = {
    "by reward": {"min_reward": 0.9},
    "by a reward that none has": {"min_reward": 5},
    "by flag": {"flag": "truncated"},
    "by correctness": {"correct": "false"},
    "by steps": {"first_step": 400, "last_step": 500},
}


def measure_rollouts(
    service: Service, contents: FilledRollouts, size: Rollouts, *, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each kind of request, after an uncounted request of each."""
    seconds_by_request: dict[str, list[float]] = {}
    for name, request in _requests(service, contents, size):
        measure_request(service, *request())
        seconds_by_request[name] = [measure_request(service, *request()) for _ in range(rounds)]
    return seconds_by_request


def _requests(
    service: Service, contents: FilledRollouts, size: Rollouts
) -> Iterator[tuple[str, Callable[[], Request]]]:
    chance = random.Random(1)
    run: Params = {"run": contents.run}

    def search(path: str, q: str, **params: Any) -> Callable[[], Request]:
        return lambda: (f"/rollouts{path}", {"runs": contents.run, "q": q, **params})

    for name, q in SEARCH_QUERIES.items():
        yield f"search: {name}", search("/search", q)
        yield f"counts over steps: {name}", search("/search/steps", q)
    for name, params in FILTER_PARAMETERS.items():
        yield f"search: a word of every completion, {name}", search("/search", "think", **params)
        yield (
            f"counts over steps: a word of every completion, {name}",
            search("/search/steps", "think", **params),
        )
    yield "search: the newest first", search("/search", "think", sort="-step")
    yield (
        "lift: two windows of steps",
        lambda: (
            "/rollouts/lift",
            {"runs": contents.run, "by": "steps", "a_last": size.steps // 4, "b_first": size.steps * 3 // 4},
        ),
    )
    yield "lift: wrong and right", lambda: ("/rollouts/lift", {"runs": contents.run, "by": "correct"})
    yield "the groups of a step", lambda: ("/rollouts", run | {"step": chance.randint(1, size.steps)})
    yield (
        "a prompt's groups",
        lambda: (
            "/rollouts",
            run | {"prompt": f"train-{chance.randrange(size.prompts)}"},
        ),
    )
    step = max(1, size.steps // TOKENS_EVERY_STEPS // 2) * TOKENS_EVERY_STEPS
    page = service.get("/rollouts", run=contents.run, kind="train", step=str(min(step, size.steps)))
    completions = [completion["id"] for group in page["items"] for completion in group["completions"]]
    if step <= size.steps:
        yield "tokens of a completion", lambda: (f"/rollouts/{chance.choice(completions)}/tokens", {})
    sorts = ("drift", "-drift", "rate", "visits")
    yield (
        f"atlas of {size.prompts:,} prompts",
        lambda: (
            "/rollouts/prompts",
            run | {"sort": chance.choice(sorts), "limit": chance.randint(98, 100)},
        ),
    )
    yield "marks over steps", lambda: ("/rollouts/counts", run | {"mark": "wrong,rewarded"})
    yield "probes of evaluations", lambda: ("/rollouts/probes", run)
