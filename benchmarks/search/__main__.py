"""Searches replayed over runs that are stored: shares of steps saved, winners lost, and the regret.

    python -m benchmarks.search              a few minutes on a core; trains nothing
    python -m benchmarks.search --orders 5   fewer orders

Writes results.md beside this file; `make docs` brings the tables into docs/.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.experiments.search_settings import SearchSettings
from backend.metrics.statistics import spread
from benchmarks.search.replay import Replayed, presets, replayed, seeds

RESULTS = Path(__file__).parent / "results.md"
Z = 1.959963984540054

PRUNING: dict[str, dict[str, Any]] = {
    "none": {"pruner": "none", "prune_sick": False},
    "diagnosis": {"pruner": "none", "prune_sick": True},
    "median, from 25 % on": {"pruner": "median", "prune_sick": False, "first_rung": 0.25},
    "median, from 50 % on": {"pruner": "median", "prune_sick": False, "first_rung": 0.5},
    "halving, rungs at 25 and 75 %": {"pruner": "halving", "prune_sick": False, "first_rung": 0.25},
    "halving, rung at 50 %": {"pruner": "halving", "prune_sick": False, "first_rung": 0.5},
    "median from 50 % on, and diagnosis (default)": {},
}


def main() -> None:
    """Replay and tabulate."""
    parser = argparse.ArgumentParser(description="Replay searches over the stored runs of every preset.")
    parser.add_argument("--orders", type=int, default=20, help="seeds of the sampler for each first seed")
    orders = parser.parse_args().orders
    text = f"{pruners(orders)}\n\n{samplers(orders)}\n"
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


def pruners(orders: int) -> str:
    """The table of pruners: every preset is tried, in random orders."""
    cells = len(presets())
    caption = (
        f"Every one of {cells} presets is tried, in {orders} random orders with each of {len(seeds())} first "
        "seeds; four runs at once, the best 3 run again with the other two seeds. *Best pruned*: the preset "
        "with the best final accuracy by the first seed was stopped. *Other winner*: another preset wins "
        "than without pruning. *Regret*: accuracy of the best preset less that of the winner, means of three "
        "seeds. 95 % intervals: Wilson's of shares, Student's of means; replays share runs, so the intervals "
        "speak of orders, not of other grids."
    )
    lines = [
        caption,
        "",
        "| pruning | steps saved | best pruned | other winner | regret |",
        "|---|---|---|---|---|",
    ]
    for name, fields in PRUNING.items():
        print(name, flush=True)
        lines.append(f"| {name} | {_row(fields | {'sampler': 'random'}, cells, orders)} |")
    return "\n".join(lines)


def samplers(orders: int) -> str:
    """The table of samplers: a third of the presets is tried."""
    cells = len(presets()) // 3
    caption = (
        f"The same with {cells} of the presets and the default pruning. Names of presets have no order, so "
        "TPE has little to learn from them."
    )
    lines = [
        caption,
        "",
        "| sampler | steps saved | best pruned | other winner | regret |",
        "|---|---|---|---|---|",
    ]
    rows = [f"| {name} | {_row({'sampler': name}, cells, orders)} |" for name in ("tpe", "random")]
    return "\n".join([*lines, *rows])


def _row(fields: dict[str, Any], cells: int, orders: int) -> str:
    settings = SearchSettings.model_validate(fields)
    found = [
        replayed(settings, cells=cells, seed=order, first=first)
        for first in seeds()
        for order in range(orders)
    ]
    return " | ".join(
        [
            _mean([each.saved for each in found], 100, " %"),
            _share(found, "lost_best"),
            _share(found, "lost_winner"),
            _mean([each.regret for each in found], 100, " points"),
        ]
    )


def _mean(values: Sequence[float], scale: float, unit: str) -> str:
    found = spread([scale * value for value in values])
    if found.mean is None or found.low is None or found.high is None:
        return "–"
    return f"{found.mean:.1f}{unit} [{found.low:.1f}, {found.high:.1f}]"


def _share(found: Sequence[Replayed], name: str) -> str:
    hits, n = sum(getattr(each, name) for each in found), len(found)
    share = hits / n
    middle, half = share + Z * Z / (2 * n), Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    low, high = ((middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n))
    return f"{hits} of {n} [{100 * low:.0f} %, {100 * high:.0f} %]"


if __name__ == "__main__":
    main()
