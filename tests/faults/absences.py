"""Broker and database are away for minutes while runs train and are launched (rows 5 and 6 of the plan).

broker_gone       killed, and a new one after so long
broker_silent     stopped: it takes what is sent and never answers
postgres_paused   the server and all its processes stand still
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import select
from starlette.testclient import TestClient

from backend.http.problem_details import MEDIA_TYPE
from backend.storage.engine import reading
from backend.storage.models import Attempt, Run
from tests.api_client import TOKEN, serving
from tests.faults.campaign import Round, configs, references, verdict_of
from tests.faults.chaos import Chaos
from tests.faults.plant import Kind, Plant
from tests.faults.processes import frozen
from tests.faults.verdict import Verdict
from tests.waiting import wait_for

POLL_SECONDS = 15.0
"""As an installation has it: how long a run waits without a broker."""

BACK_SECONDS = 2.0
"""With one it starts as soon as this, on a machine that is not overloaded."""

LAUNCH_SECONDS = 20.0
"""One run is launched about so often."""

MAX_TRIES = 10
"""Runs that are launched, one after another, until one starts soon again."""


def broker_away(kind: Kind, warm: Path | None, *, fault: str, seconds: float) -> Round:
    """Runs are launched before, while the broker is away, and after: each is trained once, and soon."""
    started = time.monotonic()
    with Plant(kind, warm, slots=1, poll_seconds=POLL_SECONDS) as plant, _service(plant) as client:
        plant.wait_for_workers()
        (config,) = configs(1)
        (expected,) = references(plant, [config])
        launches = Launches(plant, client, config)
        chaos = Chaos(plant, 0)
        launches.one("before")
        with _away(plant, fault):
            returns_at = time.monotonic() + seconds
            while time.monotonic() < returns_at:
                launches.one("away")
                time.sleep(max(0.0, min(LAUNCH_SECONDS, returns_at - time.monotonic())))
        returned = time.monotonic()
        for _ in range(MAX_TRIES):
            if launches.one("after") <= BACK_SECONDS:
                break
        back = time.monotonic() - returned
        plant.wait_until_ended(launches.run_ids)
        chaos.look(launches.run_ids)
        chaos.counts[fault] += 1
        verdict = verdict_of(plant, chaos, dict.fromkeys(launches.run_ids, expected))
        _check_undisturbed(plant, verdict)
    measured = {"away_seconds": seconds, **launches.measured(), "back_seconds": round(back, 1)}
    return Round(kind, 0, chaos.counts, verdict, time.monotonic() - started, measured)


def postgres_paused(kind: Kind, warm: Path | None, *, seconds: float) -> Round:
    """Meanwhile every answer is 503 with its problem, and afterwards runs are what they would have been."""
    started = time.monotonic()
    with Plant(kind, warm) as plant, _service(plant) as client:
        run_configs = configs(4)
        expected = references(plant, run_configs)
        run_ids = plant.queue(run_configs)
        wait_for(
            lambda: any(trainer.step > trainer.began_at for trainer in plant.trainers()), "a trainer gets on"
        )
        chaos = Chaos(plant, 0)
        chaos.look(run_ids)
        answers: Counter[str] = Counter()
        longest = 0.0
        with frozen(*plant.postgres_processes()):
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                asked = time.monotonic()
                answers[_judged(client.get("/api/v1/runs"))] += 1
                longest = max(longest, time.monotonic() - asked)
        returned = time.monotonic()
        wait_for(lambda: client.get("/api/v1/runs").status_code == 200, "the service answers again")
        back = time.monotonic() - returned
        plant.wait_until_ended(run_ids)
        chaos.look(run_ids)
        chaos.counts["postgres_paused"] += 1
        verdict = verdict_of(plant, chaos, dict(zip(run_ids, expected, strict=True)))
    verdict.sentences.extend(f"while Postgres stood still: {answer}" for answer in answers if answer != "503")
    measured = {
        "away_seconds": seconds,
        "answers": dict(answers),
        "longest_answer_seconds": round(longest, 1),
        "back_seconds": round(back, 1),
    }
    return Round(kind, 0, chaos.counts, verdict, time.monotonic() - started, measured)


def _service(plant: Plant) -> AbstractContextManager[TestClient]:
    """Its requests; the reconciler is the plant's."""
    with_token = plant.settings.model_copy(update={"grpolab_token": TOKEN, "writes_per_second": 0})
    return serving(with_token, with_token.effective_database_url, broker_url=plant.settings.broker_url)


@contextmanager
def _away(plant: Plant, fault: str) -> Iterator[None]:
    assert plant.broker is not None
    if fault == "broker_silent":
        with frozen(plant.broker.pid):
            yield
        return
    plant.broker.kill()
    plant.broker.wait()
    try:
        yield
    finally:
        plant.start_broker()


class Launches:
    """Runs launched one by one over HTTP, and what was measured of each."""

    def __init__(self, plant: Plant, client: TestClient, config: dict[str, Any]) -> None:
        self.plant, self.client = plant, client
        self.run_ids: list[str] = []
        self._body = {
            "name": "absence",
            "base": {name: value for name, value in config.items() if name != "seed"},
            "variants": [{"name": "only"}],
            "seeds": [config["seed"]],
        }
        self._post: dict[str, list[float]] = {}
        self._start: dict[str, list[float]] = {}

    def one(self, when: str) -> float:
        """Launch one, with a place free for it; how long it waited for its trainer, in seconds."""
        self.plant.wait_until_ended(self.run_ids)
        asked = time.monotonic()
        answer = self.client.post("/api/v1/experiments", json=self._body)
        self._post.setdefault(when, []).append(time.monotonic() - asked)
        assert answer.status_code == 201, answer.text
        run_id = answer.json()["runs"][0]["id"]
        self.run_ids.append(run_id)
        wait_for(lambda: self.plant.read(run_id).started_at, "a launched run starts")
        run = self.plant.read(run_id)
        waited = (run.started_at or 0.0) - run.queued_at
        self._start.setdefault(when, []).append(waited)
        return waited

    def measured(self) -> dict[str, Any]:
        """Median and longest, by when they were launched."""
        seconds_by_case = {"launch_seconds": self._post, "start_seconds": self._start}
        return {
            case: {
                when: [round(median(seconds), 2), round(max(seconds), 2)] for when, seconds in by_when.items()
            }
            for case, by_when in seconds_by_case.items()
        }


def _check_undisturbed(plant: Plant, verdict: Verdict) -> None:
    """No worker died and no attempt ended but with its run."""
    if len(plant.alive()) != plant.workers:
        verdict.sentences.append(f"{plant.workers - len(plant.alive())} workers died")
    with reading(plant.sessions) as session:
        again = session.scalars(select(Attempt.run_id).join(Run).where(Attempt.number > 1)).all()
    verdict.sentences.extend(f"run {run_id} was disturbed" for run_id in again)


def _judged(answer: Any) -> str:
    """The status, and what is wrong with a refusal."""
    is_whole = answer.headers.get("content-type") == MEDIA_TYPE and answer.headers.get("retry-after")
    return (
        str(answer.status_code)
        if answer.status_code < 500 or is_whole
        else f"{answer.status_code}: {answer.text}"
    )
