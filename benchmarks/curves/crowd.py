"""Twenty clients that ask for one chart once a second, beside one alone; and how many answers there are."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.curves.data import METRIC
from benchmarks.curves.measure import Answered, ask
from benchmarks.curves.ours import Ours
from benchmarks.curves.peers import Asked

CLIENTS = 20


@dataclass(slots=True)
class Paced:
    """A chart that is asked for once a second."""

    alone: Answered = field(default_factory=Answered)
    many: Answered = field(default_factory=Answered)
    processor: list[float] = field(default_factory=list)
    """Seconds of the service's processes per answer to the many."""


@dataclass(slots=True)
class Crowd:
    """What one client and many have measured."""

    paced: dict[str, Paced] = field(default_factory=dict)
    unpaced: dict[str, Paced] = field(default_factory=dict)
    """The same without a pause: how many answers a second."""
    load: float = 0.0


def chart_of(runs: Sequence[str], **parameters: str | int) -> Asked:
    """The request of the pages for one chart."""
    given = {"runs": ",".join(runs), "metrics": METRIC, "x": "step", "max_points": 500, "compact": "true"}
    query = "&".join(f"{name}={value}" for name, value in (given | parameters).items())
    return Asked("GET", f"/api/v1/series?{query}")


def measure_crowd(ours: Ours, runs: Sequence[str], *, rounds: int, seconds: float) -> Crowd:
    """One client and many by turns, in each round after one another."""
    service = ours.serve()
    access = {"Authorization": f"Bearer {service.token}"}
    tag = service.http.get(chart_of(runs).path).raise_for_status().headers["etag"]
    kinds = {
        "unchanged, reader has it (304)": chart_of(runs).raw(
            service.port, **access, **{"If-None-Match": tag}
        ),
        "unchanged, sent again": chart_of(runs).raw(service.port, **access),
        "each made anew": chart_of(runs, x_max="NUMBER").raw(service.port, **access),
    }
    crowd = Crowd()
    for _ in range(rounds):
        for name, request in kinds.items():
            _round(ours, crowd.paced.setdefault(name, Paced()), request, seconds=seconds, every=1.0)
            _round(ours, crowd.unpaced.setdefault(name, Paced()), request, seconds=seconds / 4, every=0.0)
    crowd.load = os.getloadavg()[0]
    return crowd


def _round(ours: Ours, paced: Paced, request: str, *, seconds: float, every: float) -> None:
    assert ours.service is not None  # noqa: S101 - it serves
    port = ours.service.port
    ask(paced.alone, port, request, clients=1, seconds=seconds, every=every)
    answered = len(paced.many.seconds)
    before = ours.processor_seconds()
    ask(paced.many, port, request, clients=CLIENTS, seconds=seconds, every=every)
    paced.processor.append((ours.processor_seconds() - before) / (len(paced.many.seconds) - answered))
