"""A parent process that has imported everything and forks trainers.

A trainer process spends five seconds of CPU time on imports, most of the cost of a kill. Here the
supervisor starts `stub.py` instead. The stub hands its three streams to the parent, whose fork runs
`worker.train.main`, and exits when its trainer exits. Training, SQL and files are the same as those of a
separate process; only the start differs.

    python -m tests.faults.warm SOCKET
    <SOCKET>.pids/<pid of the stub>     the process id of its trainer"""

import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from backend.service.process.gc_freeze import freeze_gc
from tests.faults.failpoints import arm_failpoints


def main(path: Path) -> NoReturn:
    """Serve until standard input, the harness's pipe, ends."""
    with freeze_gc():
        import worker.checkpoints.store
        import worker.train
        import worker.training.trainer

    worker.training.trainer.use_threads(1)
    path.with_suffix(".pids").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    child_ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    stub_by_pid: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([0, listener.fileno(), child_ended], [], [])
        if 0 in readable:
            os._exit(0)  # an orderly exit of torch takes seconds
        if child_ended in readable:
            os.read(child_ended, 4096)
            _report(stub_by_pid)
        if listener.fileno() in readable:
            stub, _ = listener.accept()
            stub_by_pid[_fork(path, stub, listener)] = stub


def _fork(path: Path, stub: socket.socket, listener: socket.socket) -> int:
    message, streams, _, _ = socket.recv_fds(stub, 65536, 3)
    order = json.loads(message)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        _train(order, streams)
    for stream in streams:
        os.close(stream)
    (path.with_suffix(".pids") / str(order["pid"])).write_text(str(child))
    stub.sendall(b"%d\n" % child)
    return child


def _report(waiting: dict[int, socket.socket]) -> None:
    """Tell each stub whose trainer has ended its exit status."""
    while waiting:  # check every ended fork, since one signal may stand for several
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        stub = waiting.pop(child)
        try:
            stub.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        except OSError:
            continue  # the stub ended before its trainer
        finally:
            stub.close()


def _train(order: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run a trainer in the fork."""
    from worker.train import main as train

    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    arm_failpoints(*order["arguments"])
    code = 1
    try:
        train()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
