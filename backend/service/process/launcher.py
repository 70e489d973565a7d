"""The launcher: starts broker, service and worker as child processes, restarts them and stops them.

launcher ── broker    embedded Valkey; killed by the kernel when the launcher dies (Linux)
         ├─ service   `grpolab serve`; ends when the launcher's pipe on its standard input closes
         └─ worker    `grpolab worker`; the same; its trainers are tied to it in the same way
"""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from sqlalchemy import Engine

from backend.base.sandbox.layers import check_sandbox
from backend.base.settings import Settings, service_url
from backend.http.auth.tokens import login_link
from backend.runs.queue.broker import Broker, choose_broker, is_ready, prepare_broker
from backend.runs.workers.store import load_slots
from backend.service.process import preflight
from backend.service.process.instance_lock import AlreadyRunning, hold_instance, is_alive, listening_as
from backend.service.process.lifeline import LIFELINE_VARIABLE as LIFELINE
from backend.service.process.lifeline import die_with_parent
from backend.service.process.log_files import last_words, limit_size
from backend.service.process.preflight import CannotStart
from backend.service.process.terminal import Terminal, link_command, show_link
from backend.storage.engine import open_engine, open_read_session, open_sessions
from backend.storage.migrate import migrate

LOG_CHECK_SECONDS = 5.0
"""Seconds between two checks of the sizes of log files."""

RESTART_PAUSE_SECONDS = (0.5, 1, 2, 5, 10, 30)
"""Delays in seconds before a program that ended unexpectedly is restarted."""

FORCED_STOP_SECONDS = 5.0
"""Seconds after a second request to stop before running programs are killed."""

RESTART_RESET_SECONDS = 60
"""Seconds of running after which a program that ends is restarted with the shortest delay again."""


MAX_START_SECONDS = 120
"""Seconds after which a program that is not ready has failed to start."""


class Stopped(Exception):
    """The user has asked to stop."""


@dataclass(slots=True)
class ChildProcess:
    """A program of the process tree."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    grace_seconds: float
    """Seconds between the request to end and killing the process."""
    is_ours: bool = True
    """Whether the program watches its standard input; others get the kernel's parent-death signal."""
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    restarts: int = 0

    def start(self) -> None:
        """Start the process in a separate session, so that Ctrl-C reaches only the launcher."""
        self.log.parent.mkdir(mode=0o700, exist_ok=True)
        limit_size(self.log)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE if self.is_ours else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.env, **({LIFELINE: "1"} if self.is_ours else {})},
                start_new_session=True,
                preexec_fn=None if self.is_ours else die_with_parent,  # noqa: PLW1509 - one thread only
            )
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int:
        """Process id; 0 before the first start."""
        return self.process.pid if self.process else 0

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the program's session."""
        if self.process is not None and self.is_running:
            os.killpg(self.process.pid, number)


@dataclass(slots=True)
class Launcher:
    """Starts the process tree, keeps it running until a signal arrives, and stops it."""

    settings: Settings
    terminal: Terminal
    children: list[ChildProcess] = field(default_factory=list)
    """Child processes in the order in which they are started."""
    signals: int = 0
    """Number of requests to stop; the second one means to stop without saving."""

    def catch_signals(self) -> None:
        """Handle Ctrl-C, SIGTERM and a closed terminal as requests to stop."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.signals += 1

    def start(self) -> None:
        """Start the broker, and then service and worker concurrently."""
        env = {**os.environ, "STATE_DIR": str(self.settings.state), "PYTHONUNBUFFERED": "1"}
        broker = choose_broker(self.settings)
        prepare_broker(broker, self.settings)
        if broker.command:
            self._start_broker(broker, env)
        service = self._child("service", self._program_command("serve"), env, grace_seconds=8)
        worker = self._child("worker", self._program_command("worker"), env, grace_seconds=45)
        service.start()
        worker.start()
        url = service_url(self.settings)
        with self.terminal.step("service", f"starting on {url}") as step:
            self._await(service, lambda: is_alive(url))
            step.result = url
        with self.terminal.step("worker", "starting") as step:
            engine = open_engine(self.settings.effective_database_url, pool_size=1)
            self._await(worker, lambda: bool(_slots(engine, worker)))
            step.result = _slots(engine, worker)
            engine.dispose()

    def _start_broker(self, broker: Broker, env: Mapping[str, str]) -> None:
        child = self._child("broker", broker.command, env, grace_seconds=5, is_ours=False)
        child.start()
        with self.terminal.step("broker", "starting") as step:
            self._await(child, lambda: broker.socket is not None and is_ready(broker.socket))
            step.result = broker.title

    def _program_command(self, command: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "backend.service", command)

    def _child(
        self,
        name: str,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        *,
        grace_seconds: float,
        is_ours: bool = True,
    ) -> ChildProcess:
        log = self.settings.state / "logs" / f"{name}.log"
        child = ChildProcess(name, argv, env, log, grace_seconds, is_ours)
        self.children.append(child)
        return child

    def _await(self, child: ChildProcess, check_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + MAX_START_SECONDS
        while not check_ready():
            if self.signals:
                raise Stopped
            if not child.is_running:
                raise CannotStart(
                    f"the {child.name} did not start: {last_words(child.log)} (log: {child.log})"
                )
            if time.monotonic() > deadline:
                raise CannotStart(
                    f"the {child.name} was not ready after {MAX_START_SECONDS} s (log: {child.log})"
                )
            time.sleep(0.03)

    def keep_running(self) -> None:
        """Restart programs that ended unexpectedly, until a signal arrives."""
        checked_at = time.monotonic()
        while not self.signals:
            is_check_due = time.monotonic() - checked_at > LOG_CHECK_SECONDS
            for child in self.children:
                self._restart(child)
                if is_check_due:
                    limit_size(child.log)
            checked_at = time.monotonic() if is_check_due else checked_at
            time.sleep(0.25)

    def _restart(self, child: ChildProcess) -> None:
        now = time.monotonic()
        if child.is_running:
            return
        if not child.restart_at:
            if now - child.started_at > RESTART_RESET_SECONDS:
                child.restarts = 0
            delay = RESTART_PAUSE_SECONDS[min(child.restarts, len(RESTART_PAUSE_SECONDS) - 1)]
            code = child.process.returncode if child.process else None
            self.terminal.say(
                f"  {child.name:<10} exited unexpectedly (code {code}); restarting in {delay} s"
            )
            child.restart_at = now + delay
        elif now >= child.restart_at:
            child.restarts += 1
            child.restart_at = 0.0
            child.start()

    def stop(self) -> None:
        """Stop the service, then the worker, which saves its runs, and finally the broker."""
        by_name = {child.name: child for child in self.children}
        for name in ("service", "worker", "broker"):
            if (child := by_name.get(name)) and child.is_running:
                self._end(child)

    def _end(self, child: ChildProcess) -> None:
        hint = "running runs are saving a checkpoint; press Ctrl-C again to stop at once"
        activity = f"stopping ({hint})" if child.name == "worker" else "stopping"
        with self.terminal.step(child.name, activity) as step:
            child.signal(signal.SIGTERM)
            deadline = time.monotonic() + child.grace_seconds
            is_hurried = False
            while child.is_running and time.monotonic() < deadline:
                time.sleep(0.02)
                if self.signals > 1 and not is_hurried:
                    # After a second SIGTERM, the worker returns its runs to the queue without a checkpoint.
                    is_hurried = True
                    child.signal(signal.SIGTERM)
                    deadline = min(deadline, time.monotonic() + FORCED_STOP_SECONDS)
            step.result = "stopped"
            if child.is_running:
                child.signal(signal.SIGKILL)
                step.result = "killed"
            if child.process:
                child.process.wait()


def _slots(engine: Engine, worker: ChildProcess) -> str:
    """Return a description of the worker's registered slots; empty if there are none yet."""
    with open_read_session(open_sessions(engine)) as session:
        slots = load_slots(session, host=platform.node(), pid=worker.pid)
        if not slots:
            return ""
        number = "one run" if len(slots) == 1 else f"{len(slots)} runs"
        return f"{number} at a time on {slots[0].device_name or slots[0].device}"


def run_tree(settings: Settings, *, show_demo: bool) -> int:
    """Run `make up` or `make demo`: start and stop an installation, or report the running one."""
    os.umask(0o077)
    terminal = Terminal()
    terminal.say("GRPO Lab")
    preflight.check_frontend()
    preflight.check_exposure(settings)
    check_sandbox(settings)
    preflight.check_state_dir(settings)
    launcher = Launcher(settings, terminal)
    launcher.catch_signals()
    try:
        with hold_instance(settings, service_url(settings)) as instance:
            preflight.check_port(settings, patience_seconds=10 if instance.is_after_crash else 0)
            preflight.check_database(settings)
            _run_until_stopped(launcher, show_demo=show_demo)
    except AlreadyRunning as running:
        terminal.say(f"  {running}")
        if show_demo and running.instance.pid:
            _show_demo(terminal, settings, running.instance.url)
        command = link_command(listening_as(settings, running.instance))
        terminal.say(f"  `{command}` prints a login link")
    return 0


def _show_demo(terminal: Terminal, settings: Settings, url: str) -> None:
    """Launch the demo, after waiting for a service that another process is starting."""
    from backend.service.process.demo import launch_demo

    with terminal.step("demo", "launching, once per state directory") as step:
        deadline = time.monotonic() + MAX_START_SECONDS
        while not is_alive(url) and time.monotonic() < deadline:
            time.sleep(0.1)
        step.result = launch_demo(settings, url)


def _run_until_stopped(launcher: Launcher, *, show_demo: bool) -> None:
    settings, terminal = launcher.settings, launcher.terminal
    try:
        with terminal.step("database", "upgrading") as step:
            step.result = migrate(settings)
        launcher.start()
        if show_demo:
            _show_demo(terminal, settings, service_url(settings))
        show_link(terminal, settings, login_link(settings))
        terminal.say("\n  Ctrl-C stops everything; the next start continues the runs that were running.\n")
        launcher.keep_running()
    except Stopped:
        terminal.say()
    finally:
        launcher.stop()
