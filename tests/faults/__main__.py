"""The long form: `make faults`, or `python -m tests.faults --help`.

    storms    random kills, crashes, freezes and damage on six runs at a time
    deaths    one kill -9 at every statement, commit and file operation of a trainer and of a worker
    reboots   everything killed at once, then `make up` again
    services  the API killed under clients that launch, fork, upload, download and follow
    takeovers a worker killed while another is free: how soon its run goes on
    stops     runs stopped, workers and the whole command asked to end, once and twice: saved, and soon
    bells     1,000 doorbells delivered twice or more while 8 workers race for 100 runs
    absences  broker and Postgres away for as long as --broker-seconds and --postgres-seconds say
    power     the power cut at every commit and file operation, on loop devices; needs root
    soak      one fault a minute for MINUTES: nothing lost, nothing grows

Each finished round is added to the ledger, so a campaign that was ended goes on where it stood.
"""

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
from tests.faults.absences import broker_away, postgres_paused
from tests.faults.bells import ring_doubled
from tests.faults.campaign import Round, play
from tests.faults.chaos import WEIGHTS, plan
from tests.faults.deaths import die_at, discover, is_certain
from tests.faults.disks import missing
from tests.faults.plant import Kind, Plant
from tests.faults.processes import warm_parent
from tests.faults.reboots import reboot
from tests.faults.service_deaths import kill_service
from tests.faults.soak import soak
from tests.faults.stops import stop
from tests.faults.takeovers import take_over

RUNS = 6
FAULTS = 30
"""Of a round."""

ROUNDS = 4
"""Of one plant, before the next one with another broker or database."""

REBOOTS = 5
"""Of one run."""

UPS = 4
"""Times that `make up` is asked to end, of one run."""

SERVICE_DEATHS = 25
"""Of one service's clients, before the next ones with an empty database."""

ROLES = ("trainer", "worker")
BROKERS = ("valkey", "filesystem")
BROKER_FAULTS = ("broker_gone", "broker_silent")


def main() -> int:
    """Play rounds until enough was killed or the time is over; 1 when anything was lost."""
    options = _options()
    deadline = time.monotonic() + 60 * options.minutes
    options.seed = options.seed or random.randrange(1, 10**9)
    print(f"seed {options.seed}: `make faults SEED={options.seed}` draws the same faults again", flush=True)
    logging.getLogger("backend").setLevel(logging.ERROR)  # that a database is away is no news here
    with warm_parent() if options.trainers == "forked" else nullcontext() as warm:
        for name in options.forms:
            for played in FORMS[name](options, warm):
                ledger.append(options.ledger, played.line())
                _show(options, played)
                if not played.is_clean:
                    return 1
                if time.monotonic() > deadline:
                    return 0
    return 0


def _storms(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    kinds = [Kind(d, b, options.trainers) for b in options.brokers for d in options.databases]
    for number, kind in enumerate(itertools.cycle(kinds)):
        missing = {d: options.kills - ledger.kills(ledger.read(options.ledger), d) for d in options.databases}
        if max(missing.values()) <= 0:
            return
        if missing[kind.database] <= 0:
            continue
        with Plant(kind, warm) as plant:
            for number_of_round in range(ROUNDS):
                seed = options.seed + ROUNDS * number + number_of_round
                yield play(plant, plan(kind, seed, FAULTS, options.faults), seed=seed, runs=RUNS)


def _deaths(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    if warm is None:
        raise SystemExit("deaths at every point need forked trainers")
    for database in options.databases:
        kind = Kind(database, BROKERS[0])
        points_by_role = discover(kind, warm)
        for role in options.roles:
            played, missed = die_at(kind, warm, role, points_by_role[role])
            played.verdict.sentences.extend(
                f"no {role} came to {point!r}" for point in missed if is_certain(point)
            )
            yield played


def _reboots(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for number in range(0, options.reboots, REBOOTS):
        yield reboot(options.seed + number, times=REBOOTS)


def _services(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for database in options.databases:
        for number in range(0, options.services, SERVICE_DEATHS):
            times = min(SERVICE_DEATHS, options.services - number)
            yield kill_service(database, options.seed + number, times=times)


def _takeovers(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for database in options.databases:
        yield take_over(Kind(database, BROKERS[0], options.trainers), warm, times=options.takeovers)


def _stops(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for database in options.databases:
        yield stop(Kind(database, BROKERS[0], options.trainers), warm, seed=options.seed, times=options.stops)
    for number in range(0, options.stops // 10, UPS):
        yield reboot(options.seed + number, times=UPS, ways=("up_asked", "up_asked_twice"))


def _bells(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    sizes = {"runs": 100, "bells": 1000, "workers": 8}
    for database in options.databases:
        yield ring_doubled(Kind(database, BROKERS[0], options.trainers), warm, seed=options.seed, **sizes)


def _absences(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    for database, fault, _ in itertools.product(options.databases, BROKER_FAULTS, range(options.absences)):
        kind = Kind(database, BROKERS[0], options.trainers)
        yield broker_away(kind, warm, fault=fault, seconds=options.broker_seconds)
    if "postgres" in options.databases:
        for _ in range(options.pauses):
            kind = Kind("postgres", BROKERS[0], options.trainers)
            yield postgres_paused(kind, warm, seconds=options.postgres_seconds)


def _power(options: argparse.Namespace, _warm: Path | None) -> Iterator[Round]:
    if reason := missing():
        raise SystemExit(reason)
    from tests.faults.power import campaign  # imports torch

    yield from campaign(options.databases, ledger.read(options.ledger))


def _soak(options: argparse.Namespace, warm: Path | None) -> Iterator[Round]:
    kind = Kind(options.databases[0], options.brokers[0], options.trainers)
    yield soak(kind, warm, seed=options.seed, minutes=options.minutes, every_seconds=options.every)


FORMS = {
    "storms": _storms,
    "deaths": _deaths,
    "reboots": _reboots,
    "services": _services,
    "takeovers": _takeovers,
    "stops": _stops,
    "bells": _bells,
    "absences": _absences,
    "power": _power,
    "soak": _soak,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["storms"])
    parser.add_argument("--seed", type=int, default=0, help="of the faults; 0 draws one")
    parser.add_argument("--databases", nargs="+", choices=ledger.DATABASES, default=list(ledger.DATABASES))
    parser.add_argument("--brokers", nargs="+", choices=BROKERS, default=["valkey", "valkey", "filesystem"])
    parser.add_argument("--faults", nargs="+", choices=WEIGHTS, default=[], help="only these in storms")
    parser.add_argument("--kills", type=int, default=500, help="storms end when the ledger has so many each")
    parser.add_argument("--reboots", type=int, default=50, help="how many")
    parser.add_argument("--services", type=int, default=100, help="how many deaths on each database")
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=list(ROLES), help="who dies in deaths")
    parser.add_argument("--takeovers", type=int, default=100, help="how many on each database")
    parser.add_argument("--absences", type=int, default=3, help="of the broker, each way, on each database")
    parser.add_argument("--broker-seconds", type=float, default=600, help="how long the broker is away")
    parser.add_argument("--pauses", type=int, default=5, help="of Postgres")
    parser.add_argument("--postgres-seconds", type=float, default=30, help="how long Postgres stands still")
    parser.add_argument("--stops", type=int, default=60, help="how many on each database")
    parser.add_argument("--minutes", type=float, default=60, help="no new round after so long")
    parser.add_argument("--every", type=float, default=60, help="seconds between the faults of a soak")
    parser.add_argument("--trainers", choices=("forked", "own"), default="forked", help="see warm.py")
    parser.add_argument("--ledger", type=Path, default=ledger.LEDGER)
    return parser.parse_args()


def _show(options: argparse.Namespace, played: Round) -> None:
    faults = ", ".join(f"{count} {name}" for name, count in sorted(played.faults.items()) if count)
    state = "nothing lost" if played.is_clean else "NOT CLEAN"
    lines = ledger.read(options.ledger)
    kills = " + ".join(f"{ledger.kills(lines, database)} {database}" for database in ledger.DATABASES)
    kind = "/".join(played.kind)
    print(f"{kind} {played.seconds:.0f} s: {state}; {faults}; kill -9 so far: {kills}", flush=True)
    for sentence in played.verdict.sentences:
        print(f"  {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
