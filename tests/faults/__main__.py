"""The long form: `make faults`, or `python -m tests.faults --help`.

Each finished round is added to the ledger, so a campaign that was ended goes on where it stood.
"""

import argparse
import itertools
import logging
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from tests.faults import ledger
from tests.faults.campaign import Round, play
from tests.faults.plant import Kind, Plant, warm_parent

RUNS = 6
FAULTS = 30
"""Of a round."""

ROUNDS = 5
"""Of one plant, before the next one with the other broker or database."""

BROKERS = ("valkey", "filesystem")


def main() -> int:
    """Play rounds until enough was killed or the time is over; 1 when anything was lost."""
    options = _options()
    seed = options.seed or random.randrange(1, 10**9)
    print(f"seed {seed}: `make faults SEED={seed}` draws the same faults again", flush=True)
    logging.getLogger("backend").setLevel(logging.ERROR)  # that a database is away is no news here
    with warm_parent() if options.trainers == "forked" else nullcontext() as warm:
        return _campaign(options, seed, warm)


def _campaign(options: argparse.Namespace, seed: int, warm: Path | None) -> int:
    deadline = time.monotonic() + 60 * options.minutes
    kinds = [Kind(d, b, options.trainers) for b in options.brokers for d in options.databases]
    for number, kind in enumerate(itertools.cycle(kinds)):
        if all(ledger.kills(ledger.read(), database) >= options.kills for database in options.databases):
            break
        if ledger.kills(ledger.read(), kind.database) >= options.kills:
            continue
        with Plant(kind, warm) as plant:
            for place in range(ROUNDS):
                if time.monotonic() > deadline:
                    return 0
                played = play(plant, seed=seed + ROUNDS * number + place, runs=RUNS, faults=FAULTS)
                ledger.append(played.line())
                _show(played)
                if not played.is_clean:
                    return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the faults; 0 draws one")
    parser.add_argument("--databases", nargs="+", choices=ledger.DATABASES, default=list(ledger.DATABASES))
    parser.add_argument("--brokers", nargs="+", choices=BROKERS, default=["valkey", "valkey", "filesystem"])
    parser.add_argument(
        "--kills", type=int, default=500, help="stop when the ledger has so many per database"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so long")
    parser.add_argument("--trainers", choices=("forked", "own"), default="forked", help="see warm.py")
    return parser.parse_args()


def _show(played: Round) -> None:
    faults = ", ".join(f"{count} {name}" for name, count in sorted(played.faults.items()) if count)
    state = "nothing lost" if played.is_clean else "NOT CLEAN"
    kind = "/".join(played.kind)
    kills = " + ".join(f"{ledger.kills(ledger.read(), database)} {database}" for database in ledger.DATABASES)
    print(f"{kind} {played.seconds:.0f} s: {state}; {faults}; kill -9 so far: {kills}", flush=True)
    for sentence in played.verdict.sentences:
        print(f"  {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
