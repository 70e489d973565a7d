"""Measure false alarms on series without a trend: 90 synthetic series, each in 40 random orders.

python -m benchmarks.diagnosis.shuffles
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from backend.analysis.diagnosis.judge import judge
from backend.analysis.diagnosis.log import Log, Series
from benchmarks.diagnosis.results import share_row

ORDER_COUNT = 40
SEEDS = range(9)
POINT_COUNTS = (8, 10, 15, 30, 60, 80, 120, 300, 1000)
FALLEN_VERDICTS = {"collapsed", "declining", "recovered"}
Floats = NDArray[np.float64]


def kinds(chance: np.random.Generator, count: int) -> dict[str, Floats]:
    """Return series of `count` reward-like values, healthy and broken."""
    progress = np.arange(count) / count
    return {
        "normal noise": chance.normal(0.4, 0.1, count),
        "rare hits": (chance.random(count) < 0.04) * 1.0,
        "heavy tails": chance.standard_t(1.5, count) * 0.1 + 1,
        "a collapse": np.where(progress < 0.5, progress, 0.02) + chance.normal(0, 0.03, count),
        "learning": np.minimum(0.8, progress * 3) + chance.normal(0, 0.05, count),
        "eight completions": chance.binomial(8, 0.2, count) / 8,
        "log-normal": np.exp(chance.normal(0, 1.5, count)),
        "negative": -0.3 + chance.normal(0, 0.1, count),
        "a random walk": np.cumsum(chance.normal(0, 0.05, count)) + 1,
        "two levels": chance.beta(0.3, 0.3, count),
    }


def main() -> None:
    """Judge every order as a reward and as an accuracy."""
    alarms_by_kind: dict[str, list[bool]] = {}
    verdicts: Counter[str] = Counter()
    for seed, count in zip(SEEDS, POINT_COUNTS, strict=True):
        chance = np.random.default_rng(seed)
        for kind, values in kinds(chance, count).items():
            for metric in ("reward/mean", "reward/accuracy"):
                for _ in range(ORDER_COUNT):
                    shuffled_series = Series(np.arange(1, count + 1), chance.permutation(values))
                    verdict = judge(Log({metric: shuffled_series})).verdict
                    verdicts[verdict] += 1
                    alarms_by_kind.setdefault(kind, []).append(verdict in FALLEN_VERDICTS)
    lines = [
        "| shuffled series of | called fallen | share | 95 % interval |",
        "|---|---|---|---|",
        *(share_row(kind, alarms) for kind, alarms in alarms_by_kind.items()),
        share_row("all", [is_alarm for alarms in alarms_by_kind.values() for is_alarm in alarms]),
        "",
        "Verdicts: "
        + ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in verdicts.most_common()),
    ]
    print("\n".join(lines) + ".")


if __name__ == "__main__":
    main()
