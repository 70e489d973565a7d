"""Operation of the sandbox that reads the completions of a torch file, as slime and miles write it.

Its pickle may only name plain containers and tensors. It can only call the replacements in this module: any
other name is an error, and no module is imported for it.
"""

import io
import json
import pickle
import zipfile
from collections import OrderedDict
from typing import Any

from backend.base.sandbox.operation import Operation, Request
from backend.config.messages import question_text
from backend.exchange.imports.texts import MAX_TEXT_CHARACTERS

MAX_PICKLE_BYTES = 300_000_000
MAX_REPLY_BYTES = 1_200_000
"""Maximum characters of a reply before JSON encoding; a single completion is always returned."""
MAX_TERMS = 64
MAX_NAME_CHARACTERS = 100
_TENSOR = ("torch._utils", "_rebuild_tensor_v2")


def _no_tensor(*_: Any) -> None:
    """Replace the function of torch that builds a tensor; tensor values are not needed."""


class _NoDumpError(ValueError):
    """The file is not a dump of completions; the message says why."""


class _Plain(pickle.Unpickler):
    """Reads containers of plain values; raises _NoDumpError for objects of any other class."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == _TENSOR:
            return _no_tensor
        if module == "torch" and name.endswith("Storage"):
            return name
        raise _NoDumpError(
            f"holds objects of {module[:MAX_NAME_CHARACTERS]}.{name[:MAX_NAME_CHARACTERS]}, "
            "which are not read"
        )

    def persistent_load(self, pid: Any) -> None:
        """Replace the values of a tensor."""


def completions(request: Request) -> dict[str, Any]:
    """Return the completions from a row on, with the fields of JSONL dumps, or why there are none."""
    try:
        document = _document(request["path"])
    except _NoDumpError as error:
        return {"reason": str(error)}
    samples = document.get("samples") if isinstance(document, dict) else None
    if not isinstance(samples, list):
        return {"reason": "is a file of torch without samples, which dumps of slime and miles hold"}
    rows, size = list[Any](), 0
    for sample in samples[int(request["row"]) :]:
        row = _row(sample, document.get("rollout_id")) if isinstance(sample, dict) else {}
        size += len(json.dumps(row))
        if rows and size > MAX_REPLY_BYTES:
            break
        rows.append(row)
    return {"rows": rows, "count": len(samples)}


def _document(path: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        info = next(info for info in archive.infolist() if info.filename.endswith("/data.pkl"))
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > MAX_PICKLE_BYTES:
            raise _NoDumpError(f"is packed, or holds more than {MAX_PICKLE_BYTES:,} bytes beside its tensors")
        return _Plain(io.BytesIO(archive.read(info))).load()


def _row(sample: dict[Any, Any], rollout: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"step": rollout if type(rollout) is int else None}
    for name in ("prompt", "response", "label"):
        row[name] = question_text(sample.get(name))[: MAX_TEXT_CHARACTERS + 1]
    reward = sample.get("reward")
    if isinstance(reward, dict):
        numbers = [
            (str(name)[:MAX_NAME_CHARACTERS], value) for name, value in reward.items() if _is_number(value)
        ]
        return row | {"rewards": dict(numbers[:MAX_TERMS])}
    return row | {"reward": reward if _is_number(reward) else None}


def _is_number(value: Any) -> bool:
    return type(value) in {bool, int, float}


OPERATIONS = {"torch-completions": Operation(completions)}
