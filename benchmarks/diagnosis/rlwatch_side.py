"""Run rlwatch's detectors on logs from standard input, in a separate environment."""

import json
import sys

from rlwatch.config import RLWatchConfig
from rlwatch.detectors import DetectorSuite


def main() -> None:
    job = json.load(sys.stdin)
    print(json.dumps({"severities": [worst(rows) for rows in job["logs"]]}))


def worst(rows: list[dict[str, float]]) -> str:
    """Return the highest severity of any alert, or an empty text without one."""
    suite = DetectorSuite(RLWatchConfig())
    severities = {
        alert.severity
        for row in rows
        for alert in suite.check_step(int(row["step"]), **{k: v for k, v in row.items() if k != "step"})
    }
    return next((severity for severity in ("critical", "warning") if severity in severities), "")


if __name__ == "__main__":
    main()
