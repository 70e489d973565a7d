"""Call a policy's tokenizer and chat template. This module runs inside the tokenizer's sandbox."""

import os
import resource
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from backend.base.sandbox.operation import Operation, Request

PROBE = "1+1=? The quick brown fox, über 3.14 \n\t \N{SNOWMAN} <eos> " + "a" * 200

DECODE_BATCH_SIZE = 1000
"""Number of vocabulary entries decoded at a time."""

ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
"""Environment that limits the tokenizer to one thread, because threads reserve memory and one text needs
one.
"""


def _import_libraries(_request: Request) -> None:
    os.environ.update(ONE_THREAD)
    sys.modules.setdefault(
        "torch", cast("Any", None)
    )  # importing it takes seconds and memory, and tokenizers do not need it
    import transformers

    transformers.utils.logging.set_verbosity_error()


@lru_cache(maxsize=1)
def _tokenizer(directory: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)


def _probe(request: Request) -> None:
    """Load the tokenizer and decode with it, because the caller uses it next without limits."""
    tokenizer = _tokenizer(request["directory"])
    tokenizer.decode(tokenizer.encode(PROBE))
    for start in range(0, len(tokenizer), DECODE_BATCH_SIZE):
        tokenizer.decode(list(range(start, min(start + DECODE_BATCH_SIZE, len(tokenizer)))))


def _encode(request: Request) -> list[list[int]]:
    tokenizer = _tokenizer(request["directory"])
    return [list(tokenizer.encode(text, **request["options"])) for text in request["texts"]]


def _apply(request: Request) -> Any:
    """Return the messages in the form of the chat template, as text or token ids."""
    tokenizer = _tokenizer(request["directory"])
    return tokenizer.apply_chat_template(request["messages"], return_dict=False, **request["options"])


def _with_time_limit(call: Callable[[Request], Any]) -> Callable[[Request], dict[str, Any]]:
    """Return a function that returns {"value": ...}, or {"refused": reason} for any error that a template
    raises.

    The kernel ends this process after `cpu_seconds`, because nothing else stops a call inside C or Rust.
    """

    def limited(request: Request) -> dict[str, Any]:
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        cpu_limit = int(time.process_time()) + request["cpu_seconds"] + 1
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit if hard < 0 else min(cpu_limit, hard), hard))
        try:
            return {"value": call(request)}
        except MemoryError:
            return {"refused": "it takes too much memory"}
        except Exception as error:  # noqa: BLE001 - see above
            return {"refused": str(error) or type(error).__name__}

    return limited


OPERATIONS = {
    name: Operation(_with_time_limit(call), prepare=_import_libraries, is_forked=False)
    for name, call in {"probe": _probe, "encode": _encode, "apply": _apply}.items()
}
