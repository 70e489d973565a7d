"""The layers of the sandbox, with what each prevents and whether this machine supports it."""

import sys
from functools import cache
from typing import NamedTuple

from backend.base.errors import GrpoLabError
from backend.base.sandbox import bubblewrap
from backend.base.settings import Settings

FILE_HIDING_LAYERS = {"namespaces", "landlock"}


class Layer(NamedTuple):
    """One independent barrier around a process that reads model text."""

    name: str
    keeps_out: str
    missing: str
    """The reason why this machine lacks the layer, with a remedy, or "" if the layer is available."""


class SandboxIncomplete(GrpoLabError):
    """This machine lacks a layer that the settings or programs require."""

    status = 503
    title = "Sandbox incomplete"


@cache
def layers() -> tuple[Layer, ...]:
    """Return every layer, outermost first."""
    return (
        Layer("environment", "the trainer's environment variables, such as tokens and addresses", ""),
        Layer("descriptors", "files and connections that the trainer has open", ""),
        Layer("namespaces", "other processes, the network, and every file but code", _no_namespaces()),
        Layer("landlock", "files outside of code, and TCP connections", _no_landlock()),
        Layer("seccomp", "system calls that grading does not need", _no_seccomp()),
        Layer("limits", "unlimited memory, processor time, files and processes", ""),
        Layer("fork", "state that one answer leaves behind for the next", ""),
    )


def missing_layers() -> list[Layer]:
    """Return the layers that this machine lacks."""
    return [layer for layer in layers() if layer.missing]


def layer_names() -> dict[str, list[str]]:
    """Return the names of available and missing layers, as runs and workers report them."""
    return {
        "on": [layer.name for layer in layers() if not layer.missing],
        "missing": [layer.name for layer in missing_layers()],
    }


def check_sandbox(settings: Settings) -> None:
    """Raise SandboxIncomplete if the settings require a layer that this machine lacks."""
    if settings.sandbox == "required" and (absent_layers := missing_layers()):
        reasons = "; ".join(f"{layer.name}: {layer.missing}" for layer in absent_layers)
        raise SandboxIncomplete(f"SANDBOX=required, but this machine lacks {reasons}")


def program_refusal(settings: Settings) -> str:
    """Return the reason why programs and plugins may not run on this machine, or "" if they may.

    Without a layer that hides files, a program could read tokens, the database and variables of processes.
    """
    absent_layers = {layer.name for layer in missing_layers()}
    if settings.sandbox == "unconfined" or not absent_layers >= FILE_HIDING_LAYERS:
        return ""
    return (
        "neither user namespaces nor Landlock hide the files of this machine from programs: allow one of "
        "them (`grpolab doctor` says how), or set SANDBOX=unconfined"
    )


def check_programs(settings: Settings) -> None:
    """Raise SandboxIncomplete if programs and plugins may not run on this machine."""
    if reason := program_refusal(settings):
        raise SandboxIncomplete(f"the reward code, plugins and the tool python are refused: {reason}")


def _no_namespaces() -> str:
    reason = bubblewrap.unavailable_reason()
    return reason and f"{reason}; install bubblewrap and allow unprivileged user namespaces"


def _no_landlock() -> str:
    if sys.platform != "linux":
        return "only available on Linux"
    try:
        import py_landlock

        py_landlock.get_abi_version()
    except ImportError:
        return "py-landlock is not installed"
    except py_landlock.LandlockError as error:
        return f"the kernel lacks it ({error}); it needs Linux 5.13 or newer with landlock among its LSMs"
    return ""


def _no_seccomp() -> str:
    if sys.platform != "linux":
        return "only available on Linux"
    try:
        import pyseccomp  # noqa: F401 - the import fails if the library is missing
    except (ImportError, RuntimeError):
        return "libseccomp is not installed (Debian: apt-get install libseccomp2)"
    return ""
