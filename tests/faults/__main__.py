"""The long form of the fault tests: `make faults`, or `python -m tests.faults --help`.

    storms    random kills, crashes, freezes and damage on six concurrent runs
    deaths    one kill -9 at every statement, commit and file operation of a trainer and of a worker
    reboots   kill everything at once, then start `make up` again
    services  kill the API under clients that launch, fork, upload, download and follow
    stops     stop runs, workers and the whole command, once and twice, and check what is saved
    power     cut the power at every commit and file operation, on loop devices; needs root

Each finished round is added to the ledger, so that an interrupted campaign continues where it stopped."""

import argparse
import itertools
import logging
import random
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from tests.faults import ledger
from tests.faults.campaign import Round, play
from tests.faults.chaos import WEIGHT_BY_FAULT, plan
from tests.faults.deaths import die_at, discover, is_certain
from tests.faults.disks import reason_without_disks
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.processes import warm_parent
from tests.faults.reboots import reboot
from tests.faults.service_deaths import kill_service
from tests.faults.stops import stop

RUN_COUNT = 6
FAULT_COUNT = 30
"""Number of faults per round."""

ROUND_COUNT = 4
"""Number of rounds on one installation before the next one with another broker or database."""

REBOOT_COUNT = 5
"""Number of reboots per run."""

UP_COUNT = 4
"""Number of times that `make up` is asked to end during one run."""

SERVICE_DEATH_COUNT = 25
"""Number of deaths of one service before the next one with an empty database."""

ROLES = ("trainer", "worker")
BROKERS = ("valkey", "filesystem")


def main() -> int:
    """Play rounds until enough is killed or the time is over, and return 1 if anything was lost."""
    options = _options()
    deadline = time.monotonic() + 60 * options.minutes
    options.seed = options.seed or random.randrange(1, 10**9)
    print(f"seed {options.seed}: `make faults SEED={options.seed}` draws the same faults again", flush=True)
    logging.getLogger("backend").setLevel(logging.ERROR)  # database outages are expected here
    with warm_parent() if options.trainers == "forked" else nullcontext() as warm_path:
        for name in options.forms:
            for played_round in PLAY_BY_FORM[name](options, warm_path):
                ledger.append(options.ledger, played_round.line())
                _show(options, played_round)
                if not played_round.is_clean:
                    return 1
                if time.monotonic() > deadline:
                    return 0
    return 0


def _storms(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    kinds = [Kind(d, b, options.trainers) for b in options.brokers for d in options.databases]
    for number, kind in enumerate(itertools.cycle(kinds)):
        missing_kills = {
            d: options.kills - ledger.kills(ledger.read_ledger(options.ledger), d) for d in options.databases
        }
        if max(missing_kills.values()) <= 0:
            return
        if missing_kills[kind.database] <= 0:
            continue
        with FaultyInstallation(kind, warm) as installation:
            for number_of_round in range(ROUND_COUNT):
                seed = options.seed + ROUND_COUNT * number + number_of_round
                yield play(
                    installation, plan(kind, seed, FAULT_COUNT, options.faults), seed=seed, runs=RUN_COUNT
                )


def _deaths(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    if warm is None:
        raise SystemExit("deaths at every point need forked trainers")
    for database in options.databases:
        kind = Kind(database, BROKERS[0])
        points_by_role = discover(kind, warm)
        for role in options.roles:
            played_round, missed_points = die_at(kind, warm, role, points_by_role[role])
            played_round.verdict.sentences.extend(
                f"no {role} came to {point!r}" for point in missed_points if is_certain(point)
            )
            yield played_round


def _reboots(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for number in range(0, options.reboots, REBOOT_COUNT):
        yield reboot(options.seed + number, times=REBOOT_COUNT)


def _services(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for database in options.databases:
        for number in range(0, options.services, SERVICE_DEATH_COUNT):
            times = min(SERVICE_DEATH_COUNT, options.services - number)
            yield kill_service(database, options.seed + number, times=times)


def _stops(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for database in options.databases:
        yield stop(Kind(database, BROKERS[0], options.trainers), warm, seed=options.seed, times=options.stops)
    for number in range(0, options.stops // 10, UP_COUNT):
        yield reboot(options.seed + number, times=UP_COUNT, shutdowns=("up_asked", "up_asked_twice"))


def _power(options: argparse.Namespace, _warm: Path | None) -> Iterator[Round]:
    if reason := reason_without_disks():
        raise SystemExit(reason)
    from tests.faults.power import campaign  # imports torch

    yield from campaign(options.databases, ledger.read_ledger(options.ledger))


PLAY_BY_FORM = {
    "storms": _storms,
    "deaths": _deaths,
    "reboots": _reboots,
    "services": _services,
    "stops": _stops,
    "power": _power,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--forms", nargs="+", choices=PLAY_BY_FORM, default=["storms"])
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults; 0 draws one")
    parser.add_argument("--databases", nargs="+", choices=ledger.DATABASES, default=list(ledger.DATABASES))
    parser.add_argument("--brokers", nargs="+", choices=BROKERS, default=["valkey", "valkey", "filesystem"])
    parser.add_argument(
        "--faults",
        nargs="+",
        choices=WEIGHT_BY_FAULT,
        default=[],
        help="kinds of faults in storms; all by default",
    )
    parser.add_argument("--kills", type=int, default=500, help="storms end when the ledger has so many each")
    parser.add_argument("--reboots", type=int, default=50, help="number of reboots")
    parser.add_argument("--services", type=int, default=100, help="number of deaths on each database")
    parser.add_argument(
        "--roles",
        nargs="+",
        choices=ROLES,
        default=list(ROLES),
        help="roles of the processes that die in deaths",
    )
    parser.add_argument("--stops", type=int, default=60, help="number of stops on each database")
    parser.add_argument("--minutes", type=float, default=60, help="minutes after which no round begins")
    parser.add_argument(
        "--trainers",
        choices=("forked", "own"),
        default="forked",
        help="origin of the trainers, explained in warm.py",
    )
    parser.add_argument("--ledger", type=Path, default=ledger.LEDGER_PATH)
    return parser.parse_args()


def _show(options: argparse.Namespace, played_round: Round) -> None:
    faults = ", ".join(f"{count} {name}" for name, count in sorted(played_round.faults.items()) if count)
    state = "nothing lost" if played_round.is_clean else "NOT CLEAN"
    lines = ledger.read_ledger(options.ledger)
    kills = " + ".join(f"{ledger.kills(lines, database)} {database}" for database in ledger.DATABASES)
    kind = "/".join(played_round.kind)
    print(f"{kind} {played_round.seconds:.0f} s: {state}; {faults}; kill -9 so far: {kills}", flush=True)
    for sentence in played_round.verdict.sentences:
        print(f"  {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
