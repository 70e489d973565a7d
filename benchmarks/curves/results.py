"""Format the figures in Markdown."""

from collections.abc import Sequence

from benchmarks.curves.beside import CLIENT_COUNT, Comparison
from benchmarks.curves.measure import ResponseStats


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join([_row(*head), "|---" * len(head) + "|", *(_row(*row) for row in rows)])


def _ms(answered: ResponseStats | None) -> str:
    if answered is None:
        return "not measured"
    error_note = f"; {answered.errors} of {len(answered.seconds)} were errors" if answered.errors else ""
    return f"{answered.middle * 1e3:,.1f} / {answered.p95 * 1e3:,.1f}{error_note}"


def beside_table(beside: Comparison, sizes: Sequence[int]) -> str:
    """Return the times of a chart and of the table of runs in Markdown, with a row per system."""
    head = [
        "median / p95, ms",
        "loading",
        "chart, first",
        "chart, 1 client",
        f"chart, {CLIENT_COUNT} clients",
        "bytes",
        "spikes, NaN left",
        *(
            f"table of {size:,} runs, {clients} client{'s' * (clients > 1)}"
            for size in sizes
            for clients in (1, CLIENT_COUNT)
        ),
    ]
    rows = [
        [
            system.name,
            f"{system.loading:.1f} s",
            f"{system.cold * 1e3:,.0f}",
            _ms(system.charts[1]),
            _ms(system.charts[CLIENT_COUNT]),
            f"{system.charts[1].bytes:,}",
            f"{system.survived[0]}, {system.survived[1]}",
            *(_ms(system.tables.get((size, clients))) for size in sizes for clients in (1, CLIENT_COUNT)),
        ]
        for system in beside.systems
    ]
    lines = ["One chart of all runs and the first page of the table, as each page asks for them."]
    lines += [f"{title} could not be measured: {reason}." for title, reason in beside.absent.items()]
    return "\n\n".join([" ".join(lines), _table(head, rows), *_ratios(beside)])


def _ratios(beside: Comparison) -> list[str]:
    """Return how much faster a chart is here than with the fastest peer."""
    local_systems = [system for system in beside.systems if not system.peer]
    peers = [system for system in beside.systems if system.peer]
    if not local_systems or not peers:
        return []

    def against(clients: int) -> str:
        best = min(peers, key=lambda peer: peer.charts[clients].middle)
        times = (
            f"{best.charts[clients].middle / system.charts[clients].middle:.1f} ({system.name})"
            for system in local_systems
        )
        return (
            f"with {clients} client{'s' * (clients > 1)} {best.name} takes {', '.join(times)} times as long"
        )

    return [f"A chart of the fastest peer: {against(1)}; {against(CLIENT_COUNT)}."]
