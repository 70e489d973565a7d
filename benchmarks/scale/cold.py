"""Waiting times after the machine was started: nothing of the database is in memory."""

import random
from collections.abc import Callable

from benchmarks.common.installation import Installation
from benchmarks.common.service import Service
from benchmarks.scale.measure import Request, timed


def measure_cold(
    place: Installation, kinds: dict[str, Callable[[], Request]], *, rounds: int
) -> dict[str, list[float]]:
    """Seconds of the first request of each kind in services that were just started, in random order."""
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    chance = random.Random(3)
    for _ in range(rounds):
        place.cool()
        service = Service(str(place.state), command="serve", DATABASE_URL=place.url)
        try:
            service.wait_until_it_answers()
            for name in chance.sample(list(kinds), len(kinds)):
                seconds[name].append(timed(service, *kinds[name]()))
        finally:
            service.stop()
    return seconds
