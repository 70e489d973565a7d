"""Sandbox operations that attempt what the sandbox must prevent and return how far they got."""

import builtins
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from backend.base.sandbox.operation import Operation

PTRACE_TRACEME = 0


def attempt(operation):
    """Return the result of `operation`, or the name of the error that stopped it."""
    try:
        return operation()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except MemoryError:
        return "MemoryError"


def environment(_request):
    return sorted(os.environ)


def descriptors(_request):
    """Return the open file descriptors other than standard input, output and error."""
    numbers = []
    for number in range(256):
        try:
            os.fstat(number)
        except OSError:
            continue
        numbers.append(number)
    return [number for number in numbers if number not in (1, 2)]


def read(request):
    return attempt(lambda: Path(request["path"]).read_bytes()[:20].decode(errors="replace"))


def listing(request):
    return attempt(lambda: sorted(path.name for path in Path(request["path"]).iterdir()))


def write(request):
    def write_file():
        Path(request["path"]).write_bytes(b"x")
        return "written"

    return attempt(write_file)


def connect(request):
    def open_connection():
        with socket.create_connection((request["host"], request["port"]), timeout=5):
            return "connected"

    return attempt(open_connection)


def start_program(_request):
    return attempt(lambda: subprocess.run([sys.executable, "-c", ""], check=False).returncode)


def fork(_request):
    return attempt(lambda: "forked" if os.fork() else os._exit(0))


def send_signal(request):
    def send():
        os.kill(request["pid"], 0)
        return "reached"

    return attempt(send)


def trace(_request):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.ptrace(PTRACE_TRACEME, 0, 0, 0)
    return "traced" if result == 0 else errno.errorcode[ctypes.get_errno()]


def processes(_request):
    return os.getpid(), os.getppid()


def user(_request):
    return os.getuid(), os.getgid()


def memory(request):
    return attempt(lambda: len(bytearray(request["bytes"])))


def limits(_request):
    names = ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_CPU", "RLIMIT_NPROC")
    return {name: resource.getrlimit(getattr(resource, name))[0] for name in names}


def spin(_request):
    while True:
        pass


def flood(_request):
    return "x" * 5_000_000


def forge(request):
    """Write a forged reply to every descriptor, then return another value."""
    for number in range(256):
        try:
            os.write(number, request["line"].encode())
        except OSError:
            continue
    return "honest"


def spoil(_request):
    """Change everything in the process that the next request could see."""
    vars(builtins)["sorted"] = lambda *_: ["spoilt"]
    os.environ["SPOILT"] = "1"
    vars(json)["dumps"] = lambda *_: "spoilt"
    globals()["environment"] = None
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    raise ValueError("spoilt")


def linger(_request):
    """Leave a process behind."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    return "left"


def nest(request):
    """Create deeply nested directories."""
    directory = os.open(os.environ["TMPDIR"], os.O_RDONLY)
    for _ in range(request["deep"]):
        os.mkdir("d", dir_fd=directory)
        child_directory = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = child_directory
    return "nested"


def change_mode(request):
    """Set the mode of a file, or its modification time, to its current value."""

    def set_mode():
        path = Path(request["path"])
        path.chmod(path.stat().st_mode & 0o7777)
        return "changed"

    return attempt(set_mode)


def touch(request):
    def set_times():
        status = Path(request["path"]).stat()
        os.utime(request["path"], ns=(status.st_atime_ns, status.st_mtime_ns))
        return "touched"

    return attempt(set_times)


def nap(request):
    time.sleep(request.get("rest", 0))
    return request["say"]


def complain(request):
    raise ValueError(json.loads(request["words"]))


OPERATIONS = {
    work.__name__: Operation(work)
    for work in (
        environment, descriptors, read, listing, write, connect, start_program, fork, send_signal, trace,
        processes, user, memory, limits, spin, flood, forge, spoil, linger, nest,
        change_mode, touch, nap, complain,
    )
}  # fmt: skip
