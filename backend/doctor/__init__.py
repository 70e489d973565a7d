"""Examination of a machine: what it has, what is missing, and what to do, one line each."""

from backend.doctor.finding import Finding
from backend.doctor.machine import examine_machine
from backend.doctor.services import examine_services
from backend.doctor.storage import examine_storage
from backend.settings import Settings

__all__ = ["Finding", "examine"]


def examine(settings: Settings) -> list[Finding]:
    """Look at everything that `make up` needs."""
    return [*examine_machine(settings), *examine_storage(settings), *examine_services(settings)]
