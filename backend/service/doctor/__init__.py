"""Examination of a machine: what it has, what is missing, and what to do, one line each."""

from backend.base.settings import Settings
from backend.service.doctor.finding import Finding
from backend.service.doctor.machine import examine_machine
from backend.service.doctor.services import examine_services
from backend.service.doctor.storage import examine_storage

__all__ = ["Finding", "examine"]


def examine(settings: Settings) -> list[Finding]:
    """Look at everything that `make up` needs."""
    return [*examine_machine(settings), *examine_storage(settings), *examine_services(settings)]
