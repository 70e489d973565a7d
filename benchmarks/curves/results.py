"""The figures in Markdown."""

from collections.abc import Mapping, Sequence

from benchmarks.curves.beside import Beside
from benchmarks.curves.crowd import CLIENTS, Crowd, Paced
from benchmarks.curves.measure import Answered
from benchmarks.curves.pages import Drawn


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join([_row(*head), "|---" * len(head) + "|", *(_row(*row) for row in rows)])


def _ms(answered: Answered | None) -> str:
    if answered is None:
        return "not measured"
    failed = f"; {answered.errors} of {len(answered.seconds)} were errors" if answered.errors else ""
    return f"{answered.middle * 1e3:,.1f} / {answered.p95 * 1e3:,.1f}{failed}"


def beside_table(beside: Beside, sizes: Sequence[int]) -> str:
    """A chart and the table of runs, a row per system."""
    head = [
        "median / p95, ms",
        "loading",
        "chart, first",
        "chart, 1 client",
        f"chart, {CLIENTS} clients",
        "bytes",
        "spikes, NaN left",
        *(
            f"table of {size:,} runs, {clients} client{'s' * (clients > 1)}"
            for size in sizes
            for clients in (1, CLIENTS)
        ),
    ]
    rows = [
        [
            system.name,
            f"{system.loading:.1f} s",
            f"{system.cold * 1e3:,.0f}",
            _ms(system.charts[1]),
            _ms(system.charts[CLIENTS]),
            f"{system.charts[1].bytes:,}",
            f"{system.survived[0]}, {system.survived[1]}",
            *(_ms(system.tables.get((size, clients))) for size in sizes for clients in (1, CLIENTS)),
        ]
        for system in beside.systems
    ]
    lines = ["One chart of all runs and the first page of the table, as each page asks for them."]
    lines += [f"{what} could not be measured: {reason}." for what, reason in beside.absent.items()]
    return "\n\n".join([" ".join(lines), _table(head, rows), *_ratios(beside)])


def _ratios(beside: Beside) -> list[str]:
    """How much faster a chart is here than at the fastest peer."""
    ours = [each for each in beside.systems if not each.peer]
    peers = [each for each in beside.systems if each.peer]
    if not ours or not peers:
        return []

    def against(clients: int) -> str:
        best = min(peers, key=lambda each: each.charts[clients].middle)
        times = (
            f"{best.charts[clients].middle / each.charts[clients].middle:.1f} ({each.name})" for each in ours
        )
        return (
            f"with {clients} client{'s' * (clients > 1)} {best.name} takes {', '.join(times)} times as long"
        )

    return [f"A chart of the fastest peer: {against(1)}; {against(CLIENTS)}."]


def crowd_table(crowds: Mapping[str, Crowd]) -> str:
    """One client and many, a row per kind of answer and database."""
    head = [
        "one chart",
        "database",
        "once a second: 1 client, median / p95",
        f"{CLIENTS} clients, median / p95",
        "p95 of p95 alone",
        "answers a second without a pause: 1 client",
        f"{CLIENTS} clients",
        "processor time an answer",
    ]
    rows = [
        [name, database, *_crowd_row(crowd.paced[name], crowd.unpaced[name])]
        for database, crowd in crowds.items()
        for name in crowd.paced
    ]
    return "\n\n".join([f"{CLIENTS} clients in a process of their own.", _table(head, rows)])


def _crowd_row(paced: Paced, unpaced: Paced) -> list[str]:
    return [
        f"{_ms(paced.alone)} ms",
        f"{_ms(paced.many)} ms",
        f"{paced.many.p95 / paced.alone.p95:.2f}",
        f"{_middle(unpaced.alone.rates):,.0f}",
        f"{_middle(unpaced.many.rates):,.0f}",
        f"{_middle(unpaced.processor) * 1e3:.1f} ms",
    ]


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def pages_table(pages: Mapping[str, Mapping[str, Drawn]]) -> str:
    """Panels in Chromium, a row per database and state of the cache."""
    drawn = next(iter(next(iter(pages.values())).values()))
    head = [
        "thirty panels of all runs, median",
        "drawn after",
        "processor time",
        "longest stall",
        *(f"{change}: shown after, processor time" for change in drawn.updated),
    ]
    rows = [
        [
            f"{database}, {state}",
            f"{_middle(each.drawn):.2f} s",
            f"{_middle(each.busy):.2f} s",
            f"{_middle(each.stall):.2f} s",
            *(
                f"{_middle(each.updated[change]):.2f} s, {_middle(each.updating[change]):.2f} s"
                for change in each.updated
            ),
        ]
        for database, states in pages.items()
        for state, each in states.items()
    ]
    about = (
        "Compare on a screen of 3840 x 2160 with all thirty panels on it, from the navigation until the "
        "last one is painted; "
        f"processor time of the page's main thread; {len(drawn.drawn)} visits; load average {drawn.load:.1f}."
    )
    return "\n\n".join([about, _table(head, rows)])
