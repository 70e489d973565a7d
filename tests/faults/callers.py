"""Five clients of a service that never pause, and repeat what the death of the service interrupted.

Maker      launches experiments, or forks, clones and evaluates a run, with a separate key per request
Uploader   uploads datasets
Reader     downloads a curve and a file of a checkpoint
Follower   follows the stream of events"""

import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from sqlalchemy import func, select

from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import Event, Experiment, Run
from tests.system.lab import QUICK_CONFIG, TOKEN

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PIECE_COUNT = 20
"""Number of pieces in which an upload is sent."""

MAX_DELAY_SECONDS = 120.0
"""A stream that has not sent everything after this time has lost something."""

VARIANTS = [{"name": "GRPO", "preset": "grpo"}, {"name": "DAPO", "preset": "dapo"}]
SEEDS = [0, 1]


@dataclass(frozen=True)
class Target:
    """The service that the clients call, and its data."""

    url: str
    sessions: Sessions
    datasets: Path
    run_id: str
    """A run with a curve and a checkpoint."""
    step: int
    """Step of the checkpoint."""
    file: str
    """A file of the checkpoint, as the API names it."""
    content: bytes


@dataclass
class Caller(ABC):
    """A client."""

    target: Target
    success_count: int = 0
    """Number of requests that succeeded, or of events on a stream."""
    cut_count: int = 0
    """Number of requests that the death of the service interrupted."""
    survived: int = 0
    """Number of interrupted requests whose effect was nevertheless stored in SQL or on disk."""
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(
            base_url=f"{self.target.url}/api/v1", headers=HEADERS, timeout=120, limits=limits
        )

    @property
    def name(self) -> str:
        """Name of the caller in the ledger."""
        return type(self).__name__.lower()

    def run_until_gone(self) -> None:
        """Send one request after the other until the service is gone."""
        while True:
            try:
                self.send_request()
            except httpx.ConnectError:
                return
            except httpx.TransportError:
                self.cut_count += 1
                return

    @abstractmethod
    def send_request(self) -> None:
        """Send one complete request."""

    def make_good(self) -> None:
        """Repeat the interrupted request once the service is back."""
        self.send_request()

    def check(self) -> None:
        """Check at the end that everything is stored exactly once."""
        self.expect(holds=self.success_count > 0, sentence="not one request ended well")

    def expect(self, *, holds: bool, sentence: str) -> None:
        """Record the sentence as wrong unless the condition holds."""
        if not holds:
            self.failures.append(f"{self.name}: {sentence}")


@dataclass
class Maker(Caller):
    """A client that creates experiments if `experiments` is True, else children of one run."""

    experiments: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._requests = self._launches() if self.experiments else self._children()
        self._made: dict[str, list[str]] = {}
        """Ids of the runs in the response to each key."""
        self._request: tuple[str, Any] = ("", {})
        self._key = ""

    @property
    def name(self) -> str:
        return "launcher" if self.experiments else "forker"

    def _launches(self) -> Iterator[tuple[str, Any]]:
        for number in itertools.count():
            yield (
                "/experiments",
                {"name": f"e{number}", "base": QUICK_CONFIG, "variants": VARIANTS, "seeds": SEEDS},
            )

    def _children(self) -> Iterator[tuple[str, Any]]:
        bodies = {"fork": {"step": self.target.step}, "clone": {"seed": 3}, "evaluations": {"prompts": 8}}
        for verb, body in itertools.cycle(bodies.items()):
            yield f"/runs/{self.target.run_id}/{verb}", body

    def send_request(self) -> None:
        self._request, self._key = next(self._requests), uuid4().hex
        self._send()
        self.success_count += 1

    def _send(self) -> str:
        """Send the interrupted request again or a new one, and return the text of the response."""
        path, body = self._request
        response = self.http.post(path, json=body, headers={"Idempotency-Key": self._key})
        document = response.json()
        self.expect(holds=response.status_code in (201, 202), sentence=f"{path} gave {response.text}")
        runs = sorted(run["id"] for run in document.get("runs", [document]))
        first_ids = self._made.setdefault(self._key, runs)
        self.expect(holds=first_ids == runs, sentence=f"{path} gave {runs}, before it was {first_ids}")
        return response.text

    def make_good(self) -> None:
        stored_ids = self._stored().get(self._key, [])
        expected_count = len(VARIANTS) * len(SEEDS) if self.experiments else 1
        self.expect(
            holds=len(stored_ids) in (0, expected_count),
            sentence=f"{len(stored_ids)} runs of {expected_count} are there",
        )
        self.survived += bool(stored_ids) and self._key not in self._made
        self.expect(holds=self._send() == self._send(), sentence=f"two answers to {self._request}")

    def _stored(self) -> dict[str, list[str]]:
        """Return the ids of the runs in SQL that each key has created, each with its creation event."""
        key = func.coalesce(Run.idempotency_key, Experiment.idempotency_key)
        query = select(key, Run.id, func.count(Event.id)).join(Event, Event.run_id == Run.id, isouter=True)
        query = query.join(Experiment, Experiment.id == Run.experiment_id, isouter=True)
        query = query.where(key.is_not(None)).group_by(key, Run.id).order_by(Run.id)
        ids_by_key: dict[str, list[str]] = {}
        with open_read_session(self.target.sessions) as session:
            for name, run_id, events in session.execute(query):
                ids_by_key.setdefault(name, []).append(run_id)
                self.expect(holds=events == 1, sentence=f"run {run_id} has {events} events")
        return ids_by_key

    def check(self) -> None:
        stored_ids_by_key = self._stored()
        for key, runs in self._made.items():
            stored_ids = stored_ids_by_key.get(key, [])
            self.expect(holds=stored_ids == runs, sentence=f"answered with {runs}, in SQL are {stored_ids}")


@dataclass
class Uploader(Caller):
    """A client that uploads files which differ in their first line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._content = b""
        self._uploaded: set[str] = set()

    def send_request(self) -> None:
        rows = [{"prompt": f"{uuid4().hex} {number}", "answer": number} for number in range(600)]
        self._content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        self._send()
        self.success_count += 1

    def _send(self) -> int:
        response = self.http.post(
            "/datasets",
            params={"name": "rows.jsonl"},
            content=self._chunks(),
            headers={"Content-Type": "application/x-ndjson"},
        )
        self.expect(holds=response.is_success, sentence=f"an upload gave {response.text}")
        self._uploaded.add(sha256(self._content).hexdigest())
        return response.status_code

    def _chunks(self) -> Iterator[bytes]:
        size = len(self._content) // PIECE_COUNT + 1
        for offset in range(0, len(self._content), size):
            yield self._content[offset : offset + size]
            time.sleep(0.002)

    def make_good(self) -> None:
        self._look()
        is_known = sha256(self._content).hexdigest() in self._uploaded
        self.survived += self._send() == httpx.codes.OK and not is_known

    def _look(self) -> set[str]:
        """Return the digests of the complete, labelled files on disk. No other file may exist."""
        files = {path.name for path in (self.target.datasets / "uploads").iterdir()} - {".lock"}
        complete = {name.removesuffix(".jsonl") for name in files if name.endswith(".jsonl")}
        unexpected = files - {f"{name}{end}" for name in complete for end in (".jsonl", ".json")}
        self.expect(holds=not unexpected, sentence=f"half an upload is there: {sorted(unexpected)}")
        self.expect(holds=len(files) == 2 * len(complete), sentence=f"labels are missing: {sorted(files)}")
        for name in complete:
            content = (self.target.datasets / "uploads" / f"{name}.jsonl").read_bytes()
            self.expect(holds=sha256(content).hexdigest() == name, sentence=f"{name} holds something else")
        return complete

    def check(self) -> None:
        stored_names = self._look()
        self.expect(
            holds=stored_names == self._uploaded,
            sentence=f"{len(stored_names ^ self._uploaded)} files differ",
        )


@dataclass
class Reader(Caller):
    """A client that downloads. A response that looks complete must be complete."""

    def __post_init__(self) -> None:
        super().__post_init__()
        run = f"/runs/{self.target.run_id}"
        curve = self.http.get(f"{run}/metrics.csv").content
        self._expected = {f"{run}/metrics.csv": curve, f"{run}/files/{self.target.file}": self.target.content}
        self._paths = itertools.cycle(self._expected)

    def send_request(self) -> None:
        path = next(self._paths)
        received = bytearray()
        with self.http.stream("GET", path) as response:
            for chunk in response.iter_bytes(1 << 16):
                received += chunk
                time.sleep(0.001)
        self.expect(holds=bytes(received) == self._expected[path], sentence=f"{path} is not what it was")
        self.success_count += 1


@dataclass
class Follower(Caller):
    """A client that follows the stream from its start, whatever happens to the service."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._last_id = ""
        self._first: int | None = None
        self._heard: list[int] = []
        self._follow(last_event=0)

    def send_request(self) -> None:
        self._follow(last_event=None)

    def _follow(self, *, last_event: int | None) -> None:
        """Listen until this event has been received, or forever if it is None."""
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        buffer, deadline = b"", time.monotonic() + MAX_DELAY_SECONDS
        with self.http.stream("GET", "/stream", headers=headers) as response:
            for chunk in response.iter_bytes():
                *messages, buffer = (buffer + chunk).split(b"\n\n")
                for message in messages:
                    self._read(dict(line.split(b": ", 1) for line in message.split(b"\n") if b": " in line))
                if last_event is not None and self._first is not None and self._newest() >= last_event:
                    return
                if last_event is not None and time.monotonic() > deadline:
                    self.failures.append(
                        f"{self.name}: event {last_event} was not told, the last was {self._newest()}"
                    )
                    return

    def _newest(self) -> int:
        return self._heard[-1] if self._heard else self._first or 0

    def _read(self, message: dict[bytes, bytes]) -> None:
        self._last_id = message.get(b"id", b"").decode() or self._last_id
        if self._first is None and self._last_id:
            self._first = int(self._last_id.partition(".")[0])
        if message.get(b"event") == b"event":
            self._heard.append(int(json.loads(message[b"data"])["id"]))
            self.success_count += 1
        self.expect(holds=message.get(b"event") != b"reset", sentence="the stream was told to begin again")

    def make_good(self) -> None:
        self._follow(last_event=self._in_sql()[-1])

    def _in_sql(self) -> list[int]:
        query = select(Event.id).where(Event.id > (self._first or 0)).order_by(Event.id)
        with open_read_session(self.target.sessions) as session:
            return list(session.scalars(query)) or [0]

    def check(self) -> None:
        stored_events = self._in_sql()
        self._follow(last_event=stored_events[-1])
        self.expect(
            holds=self._heard == stored_events,
            sentence=f"{len(stored_events)} events happened, {len(self._heard)} were told, "
            f"{len(set(stored_events) - set(self._heard))} of them missing",
        )
