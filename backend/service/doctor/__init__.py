"""Diagnostics of a machine: what works, what is missing, and what to do, one line per finding."""

from backend.base.settings import Settings
from backend.service.doctor.finding import Finding
from backend.service.doctor.machine import examine_machine
from backend.service.doctor.services import examine_services
from backend.service.doctor.storage import examine_storage

__all__ = ["Finding", "examine"]


def examine(settings: Settings) -> list[Finding]:
    """Return the findings about everything that `make up` needs."""
    return [*examine_machine(settings), *examine_storage(settings), *examine_services(settings)]
