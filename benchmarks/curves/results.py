"""Format the figures in Markdown."""

from collections.abc import Sequence

from benchmarks.curves.beside import CLIENT_COUNT, Comparison
from benchmarks.curves.measure import ResponseStats


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join([_row(*head), "|---" * len(head) + "|", *(_row(*row) for row in rows)])


def _ms(stats: ResponseStats | None) -> str:
    if stats is None:
        return "not measured"
    error_note = f"; {stats.errors} of {len(stats.seconds)} were errors" if stats.errors else ""
    return f"{stats.middle * 1e3:,.1f} / {stats.p95 * 1e3:,.1f}{error_note}"


def beside_table(comparison: Comparison, sizes: Sequence[int]) -> str:
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
            f"{system.loading_seconds:.1f} s",
            f"{system.cold_seconds * 1e3:,.0f}",
            _ms(system.charts[1]),
            _ms(system.charts[CLIENT_COUNT]),
            f"{system.charts[1].bytes:,}",
            f"{system.survived[0]}, {system.survived[1]}",
            *(_ms(system.tables.get((size, clients))) for size in sizes for clients in (1, CLIENT_COUNT)),
        ]
        for system in comparison.systems
    ]
    lines = ["One chart of all runs and the first page of the table, as each page asks for them."]
    lines += [
        f"{title} could not be measured: {reason}." for title, reason in comparison.reason_by_absent.items()
    ]
    return "\n\n".join([" ".join(lines), _table(head, rows), *_ratios(comparison)])


def _ratios(comparison: Comparison) -> list[str]:
    """Return how much faster a chart is here than with the fastest peer."""
    local_systems = [system for system in comparison.systems if not system.peer]
    peers = [system for system in comparison.systems if system.peer]
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
