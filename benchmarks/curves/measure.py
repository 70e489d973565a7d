"""Send requests with one client and with many, from a separate process."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

CLIENTS_PATH = Path(__file__).parent / "clients.py"


@dataclass(slots=True)
class ResponseStats:
    """Responses to one request, over all rounds."""

    seconds: list[float] = field(default_factory=list)
    bytes: int = 0
    errors: int = 0
    """Number of failed responses, which a peer may give. Their seconds count."""

    @property
    def middle(self) -> float:
        """Return the median of the seconds."""
        return median(self.seconds)

    @property
    def p95(self) -> float:
        """Return the 95th percentile by nearest rank."""
        sorted_seconds = sorted(self.seconds)
        return sorted_seconds[min(len(sorted_seconds) - 1, int(0.95 * len(sorted_seconds)))]


def send_requests(
    stats: ResponseStats,
    port: int,
    request: str,
    *,
    clients: int = 1,
    seconds: float,
    may_fail: bool = False,
) -> None:
    """Send requests with the clients for a while, where NUMBER in the request is different each time."""
    job = {"port": port, "request": request, "clients": clients, "seconds": seconds}
    output = subprocess.run(
        [sys.executable, CLIENTS_PATH], input=json.dumps(job), text=True, stdout=subprocess.PIPE, check=True
    ).stdout
    report: dict[str, Any] = json.loads(output)
    error_statuses = report["statuses"].keys() - {"200"}
    if error_statuses and not may_fail:
        raise SystemExit(f"{request[:200]} was answered with {', '.join(error_statuses)}")
    stats.errors += sum(report["statuses"][status] for status in error_statuses)
    stats.seconds += report["seconds"]
    stats.bytes = max(stats.bytes, report["bytes"])
