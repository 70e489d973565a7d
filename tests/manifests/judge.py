"""Count valid manifests, and check that the schemas refuse a misspelt field in each of them."""

import copy
import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import jsonschema
import kubernetes_validate
import sky
from sky.utils import schemas

KUBERNETES_VERSIONS = ("1.30", "1.34", "1.37")
"""Versions of Kubernetes."""


def kubernetes(job: dict[str, Any]) -> None:
    """Raise an error if a version of Kubernetes does not accept the job."""
    for number in KUBERNETES_VERSIONS:
        kubernetes_validate.validate(job, number, strict=True)


def skypilot(task: dict[str, Any]) -> None:
    """Raise an error if SkyPilot cannot read a task."""
    jsonschema.validate(task, schemas.get_task_schema())
    values = [(name, "x") for name in task.get("secrets", {})]
    sky.Task.from_yaml_config(copy.deepcopy(task) | {"workdir": "."}, secrets_overrides=values or None)


def verdicts(judge: Callable[[dict[str, Any]], None], manifests: list[Any], name: str) -> Iterator[str]:
    """Yield errors of manifests, including a misspelt field that was not refused."""
    for number, manifest in enumerate(manifests):
        if reason := find_refusal(judge, manifest):
            yield f"{name} {number}: {reason}"
        if not find_refusal(judge, manifest | {"misspelt": 1}):
            yield f"{name} {number}: a misspelt field passes"


def find_refusal(judge: Callable[[dict[str, Any]], None], manifest: dict[str, Any]) -> str:
    """Return why a manifest is refused, or an empty text if it is valid."""
    try:
        judge(manifest)
    except Exception as error:  # noqa: BLE001 - each library has classes of its own
        return str(error).splitlines()[0]
    return ""


def main() -> None:
    order = json.load(sys.stdin)
    refused_manifests = [
        *verdicts(kubernetes, order["jobs"], "job"),
        *verdicts(skypilot, order["tasks"], "task"),
    ]
    count = len(order["jobs"]) + len(order["tasks"])
    validators = ", ".join(f"{name} {version(name)}" for name in ("kubernetes-validate", "skypilot"))
    print(
        json.dumps({"valid": count - len(refused_manifests), "refused": refused_manifests, "by": validators})
    )


if __name__ == "__main__":
    main()
