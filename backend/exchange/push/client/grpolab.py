"""Client of GRPO Lab in one file: stream the metrics and completions of any trainer to a run of the service.

    import grpolab

    run = grpolab.init("http://127.0.0.1:8400", token, name="baseline", config={"lr": 1e-6})
    run.log({"reward": 0.5, "kl": 0.01}, step=1)
    run.log_completions([{"prompt": "1+1=", "completion": "2", "reward": 1.0}], step=1)
    run.finish()

It only requires Python 3.10. `log` appends a line to a file below ./grpolab and returns; a thread sends the
file. Records stay in the file until the service confirms them, so nothing is lost if the service is
unavailable or this process is killed. The next run with the same `id` sends them, or
`python grpolab.py send ./grpolab`.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import encodings.idna  # noqa: F401 - a fork in the middle of its import could not connect
import gzip
import json
import math
import operator
import os
import re
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

VERSION = "0.1.0"
BATCH_BYTES = 1_000_000
"""Approximate number of bytes of the file in one request; a longer record is sent alone."""
FILE_BYTES = 64_000_000
"""When a file is longer, a new one is started; each file is removed after all of it is stored."""
HEAD_BYTES = 16_000_000
MAX_CONFIG_BYTES = 400_000
"""The service does not keep larger configs, and might refuse the run because of their number of values."""
MAX_HELD_BYTES = 32_000_000
"""Maximum bytes that wait in memory while the disk is full; further records are dropped and counted."""
MAX_BATCH_VALUES = 100_000
"""Number of values that the service stores at once."""
BATCH_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0
"""Interval of heartbeats while nothing is logged, and thus the maximum age of the answer of `should_stop`."""
MAX_PAUSE_SECONDS = 30.0
RESPONSE_TIMEOUT_SECONDS = 30.0
SILENT_SECONDS = 2.0
LAST_STEP = 2**31 - 2
MAX_NAME_CHARACTERS = 200

_NAMES = ("name", "experiment", "variant")
_RANGE_BY_WHOLE_FIELD = {"seed": (0, 2**31 - 1), "steps": (-1, LAST_STEP)}
_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SECRET_PATTERN = re.compile(
    r"(token|secret|password|passwd|api_?key|access_?key|credentials?)$", re.IGNORECASE
)


def init(
    url: str | None = None,
    token: str | None = None,
    *,
    name: str = "",
    config: Mapping[str, Any] | None = None,
    id: str | None = None,
    directory: str | os.PathLike[str] = "grpolab",
    **about: Any,
) -> Run:
    """Return a run that can be logged to immediately, even if the service does not answer.

    `url` and `token` (of a writer) default to GRPOLAB_URL and GRPOLAB_TOKEN. If a script starts again with
    the same `id`, it continues its run. `about` may contain experiment, variant, seed, steps and origin
    ("trl", "verl"); names are cut to 200 characters, and a seed, steps or config that the service cannot
    store is left out. Raises ValueError for an invalid address or id.
    """
    address = url or _own_address()
    key = id or uuid.uuid4().hex
    if not _ID_PATTERN.fullmatch(key):
        raise ValueError("id: expected at most 128 letters, digits and . _ -")
    head = {"name": name or key, **about}
    try:
        head["config"] = _plain(_without_secrets(dict(config or {})))
    except RecursionError:
        _say("the config is nested too deeply, or holds itself: it is left out")
    head = _limit_description({field: value for field, value in head.items() if value is not None})
    head = {field: _plain(value) for field, value in head.items()}
    return Run(
        _check_url(address),
        token or os.environ.get("GRPOLAB_TOKEN", ""),
        key,
        head,
        Path(directory).absolute(),
    )


class Run:
    """A run to which this process logs. Its methods can be called from any thread, and after a fork."""

    def __init__(self, url: str, token: str, key: str, head: dict[str, Any], directory: Path) -> None:
        self.url, self.id = url, key
        self._service = _Service(url, token)
        self._head, self._directory = head, directory / key
        self._process = uuid.uuid4().hex[:16]
        """Prefix of the names of its sessions, shared by its forks: the run ends with this process."""
        self._step = 0
        self._prompts: tuple[int, int] = (-1, 0)
        self._begin()
        self._owner = self._pid
        atexit.register(self._at_exit)

    def _begin(self) -> None:
        self._pid = os.getpid()
        header = {"url": self.url, "id": self.id, "run": self._head}
        try:
            self._spools = [_Spool.create(self._directory, header, self._process)]
        except OSError as error:
            _say(f"cannot write to {self._directory} ({error.strerror}): using a temporary directory")
            self._directory = Path(tempfile.mkdtemp(prefix="grpolab-"), self.id)
            self._spools = [_Spool.create(self._directory, header, self._process)]
        self._lock = threading.RLock()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._is_finished = False
        self._thread = threading.Thread(target=self._send_all, name="grpolab", daemon=True)
        self._thread.start()

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log the numbers of a step; other values are left out. `step` defaults to the next one."""
        values = {str(name)[:512]: _spell_number(number) for name, value in metrics.items()
                  if (number := _number(value)) is not None and str(name).strip()}  # fmt: skip
        self._write(step, [{"kind": "metrics", "values": values}] if values else [])

    def log_completions(
        self, completions: Sequence[Mapping[str, Any]], step: int | None = None, *, split: str = "train"
    ) -> None:
        """Log completions with `prompt` and `completion`; consecutive ones with the same prompt form a group.

        Optional keys: `reward`, `rewards` (by name), `advantage`, `answer`, `tokens`, `finish_reason`,
        `correct`.
        """
        groups: list[dict[str, Any]] = []
        for completion in completions:
            prompt, answer = _text(completion.get("prompt", "")), _text(completion.get("answer", ""))
            if not groups or groups[-1]["prompt"] != prompt or groups[-1]["answer"] != answer:
                groups.append({"kind": "completions", "split": split, "prompt": prompt, "answer": answer,
                               "completions": []})  # fmt: skip
            groups[-1]["completions"].append(_completion(completion))
        self._write(step, groups)

    @property
    def is_finished(self) -> bool:
        """Return whether `finish` was called; then nothing more can be logged."""
        return self._is_finished

    def should_stop(self) -> bool:
        """Return whether a user has pressed Stop on the run's page, or moved the run to the trash."""
        return self._service.should_stop

    def finish(self, status: str = "finished", reason: str = "", *, seconds: float = 30.0) -> bool:
        """End the run with this status; return whether the service confirms it within `seconds`."""
        if status not in ("finished", "failed", "stopped"):
            raise ValueError("status: expected finished, failed or stopped")
        if not self._is_finished:
            self._write(None, [{"kind": "finish", "status": status, "reason": _clean(reason)[:2000]}])
            self._is_finished = True
            atexit.unregister(self._at_exit)
        return self._close(seconds)

    def _close(self, seconds: float) -> bool:
        self._closing.set()
        self._wake.set()
        self._thread.join(min(seconds, SILENT_SECONDS))
        if self._thread.is_alive() and seconds > SILENT_SECONDS:
            _say(f"waiting up to {seconds:g} s until {self.url} has stored everything")
            self._thread.join(seconds - SILENT_SECONDS)
        if is_open := self._thread.is_alive():
            command = f"{Path(__file__).name} send --url {self.url} {self._directory.parent}"
            _say(f"{self.url} has not confirmed everything: once it answers, run `python {command}`")
        return not is_open and not self._service.is_refused

    def __enter__(self) -> Run:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self.finish(*_describe_ending(error))

    def _at_exit(self) -> None:
        if os.getpid() == self._owner:
            self.finish(*_describe_ending(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)))
        elif os.getpid() == self._pid:  # a fork that has logged: the run continues without it
            self._close(10.0)

    def _write(self, step: int | None, records: list[dict[str, Any]]) -> None:
        if self._is_finished:
            raise ValueError("the run is finished: nothing more can be logged")
        if os.getpid() != self._pid:
            self._begin()  # a fork needs its own file and thread
        with self._lock:
            if records and records[0]["kind"] != "finish":
                step = self._step + 1 if step is None else int(step)
                if not 0 <= step <= LAST_STEP:
                    raise ValueError(f"step: expected a whole number from 0 to {LAST_STEP}, got {step}")
                self._step = step
            for record in records:
                if record["kind"] != "finish":
                    record["step"] = step
                if record["kind"] == "completions":
                    last, index = self._prompts
                    self._prompts = (self._step, record.setdefault("index", index if last == step else 0) + 1)
                self._spools[-1].append(record)
            newest = self._spools[-1]
            if newest.end > FILE_BYTES and not newest.held:
                with contextlib.suppress(OSError):
                    self._spools.append(_Spool.create(self._directory, newest.head, self._process))
        self._wake.set()

    # ------------------------------------------------------------ the sending thread

    def _send_all(self) -> None:
        with contextlib.suppress(_Unwanted):
            self._send_files()

    def _send_files(self) -> None:
        own_paths = {spool.path for spool in self._spools}
        for path in _by_age(self._directory.glob("*.jsonl")):
            if path not in own_paths and (leftover_spool := _Spool.adopt(path)):
                _say(f"sending what an earlier process of run {self.id} left behind")
                self._send(leftover_spool)
                leftover_spool.close(remove=True)
        while self._spools:
            self._send(self._spools[0])
            with self._lock:
                self._spools.pop(0).close(remove=True)

    def _send(self, spool: _Spool) -> None:
        """Send the file until all of it is stored and nothing more can be written to it."""
        pause = 0.0
        while True:
            self._wake.clear()
            is_closing = self._closing.is_set()
            try:
                has_more, pause = self._service.send(spool), 0.0
            except _Later as later:
                has_more, pause = True, max(later.seconds, min(MAX_PAUSE_SECONDS, max(1.0, pause * 2)))
            if not has_more and self._is_over(spool, is_closing=is_closing):
                return
            if not has_more and self._wake.wait(HEARTBEAT_SECONDS):
                self._closing.wait(BATCH_SECONDS)  # more records may come that can be sent together
            elif pause and is_closing:
                time.sleep(1.0)
            elif pause:
                self._closing.wait(pause)

    def _is_over(self, spool: _Spool, *, is_closing: bool) -> bool:
        with self._lock:
            is_newest = spool is self._spools[-1]
            return not spool.held and not spool.has_more() and (is_closing or not is_newest)


class _Later(Exception):
    """The service cannot be reached, or the request must be repeated later."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds


class _Unwanted(Exception):
    """A user has moved the run to the trash."""


class _Service:
    """The HTTP API, and its answer whether the run should stop."""

    def __init__(self, url: str, token: str, *, shows_run: bool = True) -> None:
        self._url, self._token = url, token
        self._told = ""
        self._is_shown = not shows_run
        self.should_stop = self.is_refused = False

    def send(self, spool: _Spool) -> bool:
        """Send a batch of a file, or a heartbeat; return whether there is more. Raise _Later or _Unwanted."""
        lines = spool.next_lines()
        try:
            answer = self._post(spool, lines)
        except urllib.error.HTTPError as error:
            with error:
                self._handle_rejection(spool, lines, error)
            return True
        except (OSError, ValueError, LookupError, HTTPException) as error:
            self._tell(f"{self._url} does not answer ({getattr(error, 'reason', error)}); "
                       "everything is kept and sent later")  # fmt: skip
            raise _Later from None
        if self._told:
            self._tell("")
        self._show(answer["run"])
        spool.confirm(lines)
        self.should_stop = bool(answer.get("stop"))
        return spool.has_more()

    def _post(self, spool: _Spool, lines: list[bytes]) -> dict[str, Any]:
        head = b"null" if spool.is_known else json.dumps(spool.head["run"]).encode()
        body = b'{"session":"%s","first":%d,"run":%s,"records":[%s]}' % (
            spool.session.encode(), spool.sent + 1, head, b",".join(lines),
        )  # fmt: skip
        request = urllib.request.Request(  # noqa: S310 - `_check_url` lets http and https through alone
            f"{self._url}/api/v1/pushes/{spool.head['id']}",
            gzip.compress(body, 1),
            {
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "Content-Encoding": "gzip",
                "User-Agent": f"grpolab/{VERSION}",
            },
        )
        with _OPENER.open(request, timeout=RESPONSE_TIMEOUT_SECONDS) as response:
            answer = json.load(response)
        if not isinstance(answer, dict) or "run" not in answer:
            raise ValueError("the response is not from GRPO Lab")
        return answer

    def _handle_rejection(self, spool: _Spool, lines: list[bytes], error: urllib.error.HTTPError) -> None:
        path, detail = _read_problem(error)
        if error.code == 410 and "problem+json" in error.headers.get("Content-Type", ""):
            self.should_stop = self.is_refused = True
            self._tell(f"{detail}; nothing more is sent, and what is logged stays in its file")
            raise _Unwanted
        if error.code in (404, 409) and (spool.sent or spool.is_known):
            return spool.rewind()  # the service lost confirmed records, e.g. after restoring a backup
        is_of_run = path.split(".")[0] == "run" or lines == [b"null"]  # not caused by a record
        if error.code in (400, 413, 422) and len(lines) > 1 and not is_of_run:
            return spool.send_singly(len(lines))
        if error.code in (400, 413, 422) and lines and not is_of_run:
            self._tell(f"a record is refused and left out: {detail}")
            return spool.leave_out_next()
        self._tell(f"{self._url} refuses the run ({error.code}): {detail}; everything is kept and sent later")
        retry_after = error.headers.get("Retry-After", "")
        raise _Later(min(float(retry_after), MAX_PAUSE_SECONDS) if retry_after.isdigit() else 0.0)

    def _show(self, run: Any) -> None:
        """Print the address of the run's page once."""
        if not self._is_shown and isinstance(run, str) and _ID_PATTERN.fullmatch(run):
            _say(f"the run is at {self._url}/run/{run}")
        self._is_shown = True

    def _tell(self, sentence: str) -> None:
        """Print a message unless it equals the previous one."""
        if sentence != self._told:
            _say(sentence or f"{self._url} answers again")
        self._told = sentence


class _Spool:
    """The records of one session, in an append-only file whose first line describes the run."""

    def __init__(self, path: Path, writing: int, head: dict[str, Any], start: int) -> None:
        self.path, self.head, self.session = path, head, path.stem
        self.start, self.end = start, os.fstat(writing).st_size
        self.sent, self.is_known = 0, False
        self.held: list[bytes] = []
        """Lines that could not be written to the disk."""
        self._dropped, self._singly, self._offset = 0, 0, start
        self._lengths: list[int] = []
        self._left_out: set[int] = set()
        # These are file descriptors, so that objects of a forked process do not close them a second time.
        self._writing, self._reading = writing, os.open(path, os.O_RDONLY)
        _open_spools.add(self)

    @classmethod
    def create(cls, directory: Path, head: dict[str, Any], process: str) -> _Spool:
        """Create a new spool."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / f"{process}{uuid.uuid4().hex[:16]}.jsonl"
        writing = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        _try_lock(writing)
        line = json.dumps(head).encode() + b"\n"
        os.write(writing, line)
        return cls(path, writing, head, len(line))

    @classmethod
    def adopt(cls, path: Path) -> _Spool | None:
        """Adopt the spool of a dead process; return None if it is alive or the file is not a spool."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            writing = os.open(path, os.O_RDWR)
            try:
                with path.open("rb") as file:
                    line = file.readline(HEAD_BYTES) if _try_lock(writing) else b""
                head = json.loads(line)
                if (
                    line.endswith(b"\n")
                    and _ID_PATTERN.fullmatch(head["id"])
                    and head["run"]
                    and _check_url(head["url"])
                ):
                    return cls(path, os.dup(writing), head, len(line))
            finally:
                os.close(writing)
        return None

    def append(self, record: dict[str, Any]) -> None:
        """Append one line. While the disk is full, it waits in memory."""
        self.held.append(json.dumps(record).encode() + b"\n")
        try:
            while self.held:
                if os.write(self._writing, self.held[0]) < len(self.held[0]):
                    os.ftruncate(self._writing, self.end)
                    raise OSError("the disk is full")
                self.end += len(self.held.pop(0))
        except OSError as error:
            if len(self.held) == 1:
                _say(f"cannot write to {self.path} ({error.strerror or error}): records wait in memory")
            while sum(map(len, self.held)) > MAX_HELD_BYTES:
                self.held.pop()
                self._dropped += 1
                if self._dropped == 1:
                    _say("the disk is full, and so is the memory for records: from here on some are lost")

    def next_lines(self) -> list[bytes]:
        """Return the records to send next; "null" replaces a record that the service refuses."""
        size, block = BATCH_BYTES, b""
        while self._offset + len(block) < self.end and b"\n" not in block:
            os.lseek(self._reading, self._offset, os.SEEK_SET)
            block = os.read(self._reading, min(size, self.end - self._offset))
            size *= 2
        lines = block[: block.rfind(b"\n") + 1].splitlines()[: 1 if self._singly else None]
        values = 0
        for n, line in enumerate(lines):
            values += line.count(b'": ')  # at least its number of values
            if n and values > MAX_BATCH_VALUES:
                lines = lines[:n]
                break
        self._lengths = [len(line) + 1 for line in lines]
        return [b"null" if self.sent + n in self._left_out else line for n, line in enumerate(lines, 1)]

    def confirm(self, lines: list[bytes]) -> None:
        """Note that the service has stored these lines."""
        self.is_known = True
        self.sent += len(lines)
        self._offset += sum(self._lengths[: len(lines)])
        self._singly = max(0, self._singly - len(lines))

    def has_more(self) -> bool:
        """Return whether a complete line waits; the last line may be incomplete if the process was killed."""
        return bool(self.next_lines())

    def rewind(self) -> None:
        """Send everything again; the service skips records that it has."""
        self.sent, self._offset, self.is_known, self._singly = 0, self.start, False, 0

    def send_singly(self, count: int) -> None:
        """Send this many records one by one to find the one that is refused."""
        self._singly = count

    def leave_out_next(self) -> None:
        """Leave out the next record, which is always refused: null is sent instead."""
        self._left_out.add(self.sent + 1)

    def close(self, *, remove: bool) -> None:
        """Close the file, and remove it if everything is stored."""
        if self not in _open_spools:
            return
        _open_spools.discard(self)
        os.close(self._writing)
        os.close(self._reading)
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()  # fails if it contains other files

    def forget(self) -> None:
        """Leave the file to the parent process after a fork."""
        os.close(self._writing)
        os.close(self._reading)


_open_spools: set[_Spool] = set()


def _after_fork() -> None:
    for spool in _open_spools:
        spool.forget()
    _open_spools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _by_age(paths: Iterable[Path]) -> list[Path]:
    """Return the oldest first; another process may remove a path at any time."""
    paths_by_age = []
    for path in paths:
        with contextlib.suppress(OSError):
            paths_by_age.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(paths_by_age)]


def _try_lock(descriptor: int) -> bool:
    """Return whether this process could lock the file; the lock lasts until the file is closed."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


# ---------------------------------------------------------------- trainers


class GRPOLabCallback:
    """A callback of TRL and transformers: `trainer.add_callback(GRPOLabCallback(trainer=trainer))`.

    With `trainer`, TRL's completions of every `completions`-th step are pushed too. The Stop button of the
    run's page ends the training after the current step. All other arguments are passed to `init`.
    """

    def __init__(
        self, *init_args: Any, trainer: Any = None, completions: int = 1, **init_kwargs: Any
    ) -> None:
        self.run: Run | None = None
        self._trainer, self._every = trainer, completions
        self._args, self._about = init_args, init_kwargs
        self._pushed: list[Any] = []
        self._status = ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # unused events
            return lambda *_args, **_kwargs: None
        raise AttributeError(name)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._status = ""
        if state.is_world_process_zero and self.run is None:
            run_fields = {"name": args.run_name or "", "config": args.to_dict(), "steps": state.max_steps,
                     "seed": args.seed, "origin": "trl"}  # fmt: skip
            self._about = {**run_fields, **self._about}
            self.run = init(*self._args, **self._about)
        self._continue()

    def _continue(self) -> None:
        """Open the run again for a second training or an evaluation after the first."""
        if self.run and self.run.is_finished:
            self._about["id"] = self.run.id
            self.run = init(*self._args, **self._about)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if self.run and logs and "train_runtime" not in logs:  # these logs summarise the training
            self._continue()
            self.run.log(logs, step=state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.run and self._status:  # after the training
            self.run.finish(self._status)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self.run and self._every and state.global_step % self._every == 0:
            self._push_completions(state.global_step)
        if _on_all_processes(bool(self.run and self.run.should_stop()), args):
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.run:
            self._status = "stopped" if self.run.should_stop() else "finished"
            self.run.finish(self._status)

    def _push_completions(self, step: int) -> None:
        logs = getattr(self._trainer, "_logs", None) or {}  # source of TRL's own table of completions
        texts = list(logs.get("completion", ()))
        if not texts or texts == self._pushed:
            return
        self._pushed = texts
        terms = {name: list(values) for name, values in logs.get("rewards", {}).items()}
        advantages, extra_columns = list(logs.get("advantages", ())), logs.get("extra", {})
        weights = getattr(self._trainer, "reward_weights", None)
        weights = [float(weight) for weight in weights] if weights is not None else [1.0] * len(terms)
        completions = []
        for index, (prompt, text) in enumerate(zip(logs["prompt"], texts)):
            rewards = {name: values[index] for name, values in terms.items() if index < len(values)}
            weighted_rewards = [
                w * r for w, r in zip(weights, rewards.values()) if r is not None and not math.isnan(r)
            ]
            completions.append({
                "prompt": prompt, "completion": text, "rewards": rewards,
                "reward": math.fsum(weighted_rewards) if weighted_rewards else None,
                "advantage": advantages[index] if index < len(advantages) else None,
                "answer": list(extra_columns["answer"])[index] if "answer" in extra_columns else "",
            })  # fmt: skip
        assert self.run is not None
        self.run.log_completions(completions, step=step)


def _on_all_processes(wish: bool, args: Any) -> bool:
    """Return the value of process 0 on all processes, because all must stop at the same step."""
    if getattr(args, "world_size", 1) == 1:
        return wish
    import torch

    stop_tensor = torch.tensor(int(wish), device=args.device)
    torch.distributed.broadcast(stop_tensor, 0)
    return bool(stop_tensor.item())


class VerlLogger:
    """A backend of verl's `Tracking`, with `log(data, step)`; see `add_to_verl`."""

    def __init__(
        self, project: str, experiment: str, config: Mapping[str, Any] | None, **init_kwargs: Any
    ) -> None:
        run_fields = {"name": experiment, "experiment": project, "config": config, "origin": "verl"}
        self.run = init(**{**run_fields, **init_kwargs})

    def log(self, data: Mapping[str, Any], step: int) -> None:
        self.run.log(data, step=step)

    def log_samples(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        """Log validation samples in the format of verl: input, output, score."""
        self.run.log_completions(
            [{"prompt": sample[0], "completion": sample[1], "reward": sample[2]} for sample in samples],
            step=step,
            split="eval",
        )

    def finish(self) -> None:
        self.run.finish()


def add_to_verl(**init_kwargs: Any) -> None:
    """Make every `Tracking` of verl push to GRPO Lab too. Call it in the process that trains."""
    from verl.utils import tracking

    original_init, log_samples = tracking.Tracking.__init__, tracking.ValidationGenerationsLogger.log
    loggers: list[VerlLogger] = []

    def begin_too(self: Any, project_name: str, experiment_name: str, *args: Any, **kwargs: Any) -> None:
        original_init(self, project_name, experiment_name, *args, **kwargs)
        config = kwargs.get("config", args[1] if len(args) > 1 else None)
        loggers.append(VerlLogger(project_name, experiment_name, config, **init_kwargs))
        self.logger["grpolab"] = loggers[-1]

    def log_samples_too(self: Any, backends: Any, samples: Any, step: int, *args: Any, **kwargs: Any) -> None:
        log_samples(self, backends, samples, step, *args, **kwargs)
        if loggers:
            loggers[-1].log_samples(samples, step)

    tracking.Tracking.__init__, tracking.ValidationGenerationsLogger.log = begin_too, log_samples_too


# ---------------------------------------------------------------- values as they are sent


def _number(value: Any) -> float | None:
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of many values
        return None


def _spell_number(value: float) -> float | str:
    """Return the number, or a string if it is not finite, because JSON cannot represent such numbers."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"


def _optional(value: Any) -> float | str | None:
    number = _number(value)
    return None if number is None else _spell_number(number)


def _completion(completion: Mapping[str, Any]) -> dict[str, Any]:
    correct, tokens = completion.get("correct"), completion.get("tokens")
    return {
        "text": _text(completion.get("completion", "")),
        "reward": _optional(completion.get("reward")),
        "rewards": {
            str(name)[:128]: _optional(value) for name, value in (completion.get("rewards") or {}).items()
        },
        "advantage": _optional(completion.get("advantage")),
        "tokens": None if tokens is None else max(0, int(tokens)),
        "finish_reason": str(completion.get("finish_reason") or "")[:16],
        "correct": None if correct is None else bool(correct),
    }


def _text(value: Any) -> str:
    """Return a text, or the messages of a conversation as one."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(message, dict) for message in value):
        texts = [str(message.get("content") or "") for message in value]
        if len(texts) == 1:
            return texts[0]
        return "\n\n".join(f"{message.get('role', '')}: {text}" for message, text in zip(value, texts))
    return "" if value is None else str(value)


def _limit_description(head: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a run within the limits of the service, which would refuse any other."""
    storable_head = dict(head)
    for field in _NAMES:
        if len(text := _clean(str(head.get(field, "")))) > MAX_NAME_CHARACTERS:
            _say(f"{field}: expected at most {MAX_NAME_CHARACTERS} characters, got {len(text)}: it is cut")
        if field in head:
            storable_head[field] = text[:MAX_NAME_CHARACTERS]
    for field, (minimum, maximum) in _RANGE_BY_WHOLE_FIELD.items():
        if field in head and (number := _whole_number(head[field], minimum, maximum)) is None:
            expected = f"expected a whole number from {minimum} to {maximum}, got {head[field]!r:.40}"
            _say(f"{field}: {expected}: it is left out")
            del storable_head[field]
        elif field in head:
            storable_head[field] = number
    config = json.dumps(head.get("config"), ensure_ascii=False, separators=(",", ":"))
    if (size := len(config.encode("utf-8", "replace"))) > MAX_CONFIG_BYTES:
        _say(f"config: expected at most {MAX_CONFIG_BYTES:,} bytes of JSON, got {size:,}: it is left out")
        del storable_head["config"]
    return storable_head


def _whole_number(value: Any, minimum: int, maximum: int) -> int | None:
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if minimum <= number <= maximum else None


def _plain(value: Any, depth: int = 0) -> Any:
    """Return the value as JSON data, whatever its type."""
    if value is None or isinstance(value, bool | int | str):
        return _clean(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return _spell_number(value)
    if isinstance(value, dict) and depth < 20:
        return {_clean(str(key)): _plain(child, depth + 1) for key, child in value.items()}
    if isinstance(value, list | tuple | set) and depth < 20:
        return [_plain(child, depth + 1) for child in value]
    return _clean(str(value))


def _clean(text: str) -> str:
    """Return the text without NUL and half surrogate pairs, which the service refuses."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _without_secrets(value: Any, name: str = "") -> Any:
    """Return the config without values whose names look like secrets, because it is written to a file."""
    if isinstance(value, dict):
        return {key: _without_secrets(child, str(key)) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(child, name) for child in value]
    return "[secret]" if isinstance(value, str) and value and _SECRET_PATTERN.search(name) else value


def _own_address() -> str:
    return os.environ.get("GRPOLAB_URL", "http://127.0.0.1:8400")


def _check_url(url: str) -> str:
    """Return the address without a slash at its end; raise ValueError."""
    url_parts = urllib.parse.urlsplit(url)
    if (
        url_parts.scheme not in ("http", "https")
        or not url_parts.hostname
        or url_parts.query
        or url_parts.fragment
    ):
        raise ValueError(f"url: expected an address such as http://127.0.0.1:8400, got {url!r:.100}")
    if url_parts.username or url_parts.password:
        raise ValueError("url: must hold no user and no password; pass the token as `token` or GRPOLAB_TOKEN")
    return url.rstrip("/")


def _describe_ending(error: BaseException | None) -> tuple[str, str]:
    """Return status and reason of a run that ended with this error."""
    if error is None:
        return "finished", ""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "interrupted"
    return "failed", f"{type(error).__name__}: {error}"


def _read_problem(error: urllib.error.HTTPError) -> tuple[str, str]:
    """Return (place in the request, message of the service), or an empty place and the HTTP reason."""
    try:
        problem = json.loads(error.read(100_000))
        first_error = (problem.get("errors") or [{}])[0]
        message = (
            f"{first_error['path']}: {first_error['message']}"
            if first_error.get("message")
            else problem["detail"]
        )
        return str(first_error.get("path", "")), _clean(str(message))[:500]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", str(error.reason)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that the token is not sent to another address."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"grpolab: {sentence}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- sending what is left


def send_left(
    directory: Path, token: str, url: str, *, include_other_urls: bool = False
) -> Iterator[tuple[Path, str]]:
    """Send the files of dead processes to `url`; yield each path with the reason for a failure, or "".

    The token is not sent anywhere else: files for another address are kept, unless `include_other_urls` is
    set.
    """
    for path in _by_age(directory.rglob("*.jsonl")):
        spool = _Spool.adopt(path)
        if spool is None:
            yield path, "belongs to a process that still runs, or is not a file of this client"
            continue
        service, reason = _Service(url, token, shows_run=False), ""
        try:
            if not include_other_urls and _check_url(spool.head["url"]) != url:
                reason = f"is for {spool.head['url']}: send it there, or elsewhere, with --url"
            while not reason and service.send(spool):
                pass
        except (_Later, _Unwanted):
            reason = "was not sent"
        spool.close(remove=not reason)
        yield path, reason


def main() -> int:
    """Run the command `python grpolab.py send DIRECTORY`."""
    parser = argparse.ArgumentParser(prog="grpolab.py", description="Send what earlier runs could not send.")
    parser.add_argument("command", choices=["send"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--url", help="send all files there; default: those of GRPOLAB_URL")
    arguments = parser.parse_args()
    has_succeeded = arguments.directory.is_dir()
    if not has_succeeded:
        _say(f"there is no directory {arguments.directory}")
    url, token = _check_url(arguments.url or _own_address()), os.environ.get("GRPOLAB_TOKEN", "")
    for path, reason in send_left(arguments.directory, token, url, include_other_urls=bool(arguments.url)):
        print(f"{path} {reason or 'is sent'}")
        has_succeeded = has_succeeded and not reason
    return 0 if has_succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
