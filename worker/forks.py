"""The warm parent of a worker's trainers, which has imported everything and forks a trainer on request.

    python -m worker.train --forks 5
    stdout     {"ready": true}
    socket 5   {"environment": {...}} with the trainer's standard input, output and error and a pipe
    pipe       <process id>, and once the trainer has ended <exit code, negative for a signal>

Standard input is the parent's lifeline, like a trainer's. Its forks have separate lifelines and outlive it.
The parent starts no thread and opens no connection, so that a fork starts like a separate process.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence

MAX_BYTES = 1_000_000
"""Maximum size of a request, in bytes."""


def serve_forks(descriptor: int) -> None:
    """Fork a trainer for each request, and return only in the forks. The parent ends with standard input."""
    requests = socket.socket(fileno=descriptor)
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer)
    status_fd_by_pid: dict[int, int] = {}
    """Pipes of the trainers by process id."""
    with selectors.DefaultSelector() as selector:
        for fd in (0, wake_reader, descriptor):
            selector.register(fd, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if 0 in ready:
                os._exit(0)  # an orderly shutdown of torch takes seconds
            if wake_reader in ready:
                os.read(wake_reader, 4096)
                _report(status_fd_by_pid)
            if descriptor in ready and _fork(requests, status_fd_by_pid):
                break
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for fd in (wake_reader, wake_writer, *status_fd_by_pid.values()):
        os.close(fd)
    requests.close()


def _fork(requests: socket.socket, status_fd_by_pid: dict[int, int]) -> bool:
    """Fork for the next request, and return whether this process is the fork."""
    message, descriptors, _, _ = socket.recv_fds(requests, MAX_BYTES, 4)
    if not message:
        os._exit(0)  # the worker has ended
    *streams, pipe = descriptors
    try:
        child = os.fork()
    except OSError as error:
        sys.stderr.write(f"cannot fork a trainer: {error}\n")
        child = -1
    if child == 0:
        _become_trainer(json.loads(message)["environment"], streams, pipe)
        return True
    for fd in streams if child > 0 else descriptors:
        os.close(fd)
    if child > 0:
        status_fd_by_pid[child] = pipe
    return False


def _become_trainer(environment: dict[str, str], streams: Sequence[int], pipe: int) -> None:
    os.setsid()
    os.write(pipe, b"%d\n" % os.getpid())  # only now, because killing the process kills its session
    os.close(pipe)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)


def _report(status_fd_by_pid: dict[int, int]) -> None:
    """Report the exit code of each trainer that has ended."""
    while status_fd_by_pid:  # one signal may cover several trainers
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        pipe = status_fd_by_pid.pop(child)
        with contextlib.suppress(OSError):  # the reader has ended
            os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(pipe)
