"""A hundred pages follow the stream for ten minutes, cut off at random, beside ten that never read.

    python -m benchmarks.stream

Writes results.md beside this file; `make docs` brings it into docs/.
"""

import argparse
import os
import platform
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.stream.load import Figures, Load, measure

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description="event streams under load")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", default="", help="what else the machine did meanwhile, for the record")
    arguments = parser.parse_args()
    load = replace(Load(), seconds=arguments.seconds, pages=arguments.pages, seed=arguments.seed)
    with tempfile.TemporaryDirectory(prefix="grpolab-stream-") as state:
        figures = measure(load, Path(state))
    busy = os.getloadavg()[2] if arguments.seconds >= 600 else os.getloadavg()[0]
    beside = "; ".join(filter(None, [f"load average {busy:.1f}", arguments.beside]))
    text = table(load, figures, beside)
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def table(load: Load, figures: Figures, beside: str) -> str:
    """The figures in Markdown."""
    low, high = load.cut_after
    setting = (
        f"{load.pages} pages and {load.sleepers} that never read, {load.seconds:g} s, "
        f"{load.per_second:g} events a second, each page cut off every {low:g} to {high:g} s; "
        f"seed {load.seed}; SQLite; {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}; {beside}."
    )
    milliseconds = " / ".join(f"{figures.percentile(share) * 1000:.0f}" for share in (0.5, 0.95, 0.99, 1.0))
    lived = f", after {median(figures.dropped):.0f} s (median)" if figures.dropped else ""
    rows = [
        ("events written, received by all pages", f"{figures.written:,}, {figures.received:,}"),
        ("times a page was cut off, its stream ended by the service", f"{figures.cuts:,}, {figures.ends:,}"),
        (
            "events lost, delivered twice, out of order",
            f"{figures.gaps}, {figures.repeats}, {figures.repeats}",
        ),
        ("streams told to start over", f"{figures.resets}"),
        ("pages without the last event at the end", f"{figures.missing_at_end}"),
        ("from the writer's transaction to the page, p50 / p95 / p99 / worst", f"{milliseconds} ms"),
        ("pages dropped because they never read", f"{len(figures.dropped)}{lived}"),
        (
            "memory of the service, growth",
            f"{figures.rss_before / 1e6:.0f} MB, {figures.rss_growth / 1e6:.1f} MB",
        ),
        ("processor time of the service", f"{figures.cpu_share:.0%} of a core"),
        ("SIGTERM to end, all pages connected", f"{figures.end_seconds:.1f} s"),
    ]
    return "\n".join([setting, "", "| what | figure |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


if __name__ == "__main__":
    main()
