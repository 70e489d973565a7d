"""The measured service with its runs and curves."""

import random
import time
from collections.abc import Sequence

from sqlalchemy import insert

from backend.metrics.store import write_points
from backend.storage.engine import Sessions, open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Attempt, Experiment, Run
from benchmarks.common.installation import Installation, vacuum
from benchmarks.common.service import Service
from benchmarks.curves.data import METRIC_NAME, make_values
from benchmarks.scale.fill import attempt_row, ended_at, run_row, seal_all

POINTS_PER_TRANSACTION = 20_000


class LocalService:
    """An installation that is filled directly, as trainers fill it, and served by a separate process."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        upgrade(installation.url)
        self._engine = open_engine(installation.url)
        self.sessions: Sessions = open_sessions(self._engine)
        self.count = 0
        self.service: Service | None = None

    def add_runs(self, count: int, steps: int) -> list[str]:
        """Add finished runs without points, judged by their trainers."""
        chance = random.Random(self.count)
        rows = []
        with self.sessions.begin() as session:
            experiment = Experiment(
                name=f"curves {self.count}", request={"variants": [], "seeds": []}, request_hash="0" * 64
            )
            session.add(experiment)
            session.flush()
            for number in range(self.count, self.count + count):
                row = run_row(number, experiment.id, chance)
                summary = {
                    "step": steps,
                    "last": row["summary"]["last"] | {METRIC_NAME: 0.5},
                    "best": {},
                }
                rows.append(row | ended_at(steps) | {"status": "finished", "summary": summary})
            session.execute(insert(Run), rows)
            session.execute(insert(Attempt), [attempt_row(row["id"]) for row in rows])
        self.count += count
        return [row["id"] for row in rows]

    def add_curves(self, runs: Sequence[str], steps: int) -> float:
        """Store points in transactions like those of trainers, pack them, and return the seconds of both."""
        seconds = 0.0
        for number, run in enumerate(runs):
            points = [
                (step, {METRIC_NAME: reward}) for step, reward in enumerate(make_values(number, steps), 1)
            ]
            started_at = time.perf_counter()
            for first in range(0, steps, POINTS_PER_TRANSACTION):
                with self.sessions.begin() as session:
                    write_points(session, run, 1, points[first : first + POINTS_PER_TRANSACTION])
            seconds += time.perf_counter() - started_at
        return seconds + self.settle()

    def settle(self) -> float:
        """Do the work that follows within minutes in service, and return the seconds of sealing."""
        seconds = seal_all(self.sessions)
        vacuum(self._engine)
        return seconds

    def serve(self) -> Service:
        """Start the service, without a worker."""
        self.service = Service(
            str(self._installation.state), command="serve", DATABASE_URL=self._installation.url
        )
        self.service.wait_until_it_answers()
        return self.service

    def stop(self) -> None:
        """Stop the service and leave the database."""
        if self.service is not None:
            self.service.stop()
        self._engine.dispose()
