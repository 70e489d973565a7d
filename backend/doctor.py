"""What this machine has and what is missing, one line each."""

import platform
import sys
from collections.abc import Callable
from typing import NamedTuple

from backend.broker import choose_broker, is_ready
from backend.devices import find_gpus, find_slots, torch_build
from backend.errors import GrpoLabError
from backend.instance import AlreadyRunning, hold_instance, service_url
from backend.preflight import check_database, check_exposure, check_port, check_state_dir
from backend.settings import Settings


class Finding(NamedTuple):
    """One line of the examination."""

    what: str
    is_good: bool
    text: str


def examine(settings: Settings) -> list[Finding]:
    """Look at everything that `make up` needs."""
    return [
        Finding("python", sys.version_info >= (3, 11), f"{platform.python_version()} ({sys.executable})"),
        _checked("state", lambda: check_state_dir(settings), f"{settings.state} can be written"),
        _port(settings),
        _checked("database", lambda: check_database(settings), "opens"),
        _broker(settings),
        _torch(),
        Finding(
            "devices",
            True,
            "; ".join(f"{slot.device_name}, {slot.threads} threads" for slot in find_slots(settings)),
        ),
    ]


def _checked(what: str, check: Callable[[], None], text: str) -> Finding:
    try:
        check()
    except GrpoLabError as error:
        return Finding(what, False, error.detail)
    return Finding(what, True, text)


def _port(settings: Settings) -> Finding:
    check_state_dir(settings)
    try:
        with hold_instance(settings, service_url(settings)):
            exposure = _checked("port", lambda: check_exposure(settings), "")
            if not exposure.is_good:
                return exposure
            return _checked("port", lambda: check_port(settings), f"{settings.port} is free")
    except AlreadyRunning as running:
        return Finding("port", True, str(running))


def _broker(settings: Settings) -> Finding:
    broker = choose_broker(settings)
    state = ", answers" if broker.socket and is_ready(broker.socket) else ""
    return Finding("broker", True, broker.title + state)


def _torch() -> Finding:
    build, gpus = torch_build(), find_gpus()
    if not build:
        return Finding(
            "torch", False, "not installed: workers here cannot train (pip install -r requirements.lock)"
        )
    if gpus and build == "cpu":
        names = ", ".join(gpu.name for gpu in gpus)
        return Finding(
            "torch",
            False,
            f"this machine has a GPU ({names}), but the CPU build of torch is installed: see README",
        )
    return Finding("torch", True, f"built for {'the CPU' if build == 'cpu' else f'CUDA {build}'}")
