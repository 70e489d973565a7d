"""Call a user's reward function. This module runs inside the plugin's sandbox."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from backend.base.sandbox.operation import Operation, Request
from backend.config.plugins import REWARDS_GROUP, find_plugin
from worker.prompt import Prompt

MAX_ERROR_CHARACTERS = 200
"""Maximum length of the error of one completion of several, in characters."""

RESERVED = ("prompts", "completions", "completion_ids")


@lru_cache(maxsize=8)
def load_reward(name: str) -> Any:
    """Return the plugin's function, imported once."""
    return find_plugin(REWARDS_GROUP, name).load()


def function_kind(request: Request) -> Literal["single", "async", "batch"]:
    """Return the kind of a function: for one completion, for one and async, or for a batch.

    A batch function has a parameter named `completions`, as in TRL.
    """
    function = load_reward(request["entry_point"])
    if "completions" in inspect.signature(function).parameters:
        return "batch"
    return "async" if _is_async(function) else "single"


def call_single(request: Request) -> Any:
    """Return the value of one completion."""
    function = load_reward(request["entry_point"])
    return _to_json(function(Prompt(**request["prompt"]), request["text"], **request["params"]))


def call_async(request: Request) -> list[Any]:
    """Return {"value": ...} or {"error": "..."} for each completion, with limited concurrency."""
    return asyncio.run(_gather(request))


def call_batch(request: Request) -> Any:
    """Return the values of all completions from one call with TRL's arguments."""
    function = load_reward(request["entry_point"])
    prompts = [Prompt(**prompt) for prompt in request["prompts"]]
    texts: Sequence[Any] = request["texts"]
    questions: Sequence[Any] = [prompt.text for prompt in prompts]
    if request["messages"]:
        questions = [[{"role": "user", "content": text}] for text in questions]
        texts = [[{"role": "assistant", "content": text}] for text in texts]
    arguments = {
        **_columns(prompts),
        **request["params"],
        "prompts": questions,
        "completions": texts,
        "completion_ids": request["completion_ids"],
    }
    result = function(**_accepted_arguments(function, arguments))
    result = asyncio.run(_await(result)) if inspect.isawaitable(result) else result
    result = result.tolist() if hasattr(result, "tolist") else result
    return [_to_json(value) for value in result] if isinstance(result, list | tuple) else _to_json(result)


async def _gather(request: Request) -> list[Any]:
    function = load_reward(request["entry_point"])
    semaphore = asyncio.Semaphore(request["concurrency"])

    async def call_reward(prompt: Mapping[str, Any], text: str) -> dict[str, Any]:
        async with semaphore:
            try:
                async with asyncio.timeout(request["each_seconds"]):
                    return {"value": _to_json(await function(Prompt(**prompt), text, **request["params"]))}
            except TimeoutError:
                return {"error": f"no answer within {request['each_seconds']:g} seconds"}
            except Exception as error:  # noqa: BLE001 - It is the user's code, and the trainer decides how to handle its errors.
                return {"error": f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS]}

    pairs = zip(request["prompts"], request["texts"], strict=True)
    return list(await asyncio.gather(*(call_reward(prompt, text) for prompt, text in pairs)))


async def _await(value: Any) -> Any:
    return await value


def _is_async(function: Any) -> bool:
    call_method = getattr(function, "__call__", None)  # noqa: B004 - for objects with a `__call__` method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_method)


def _columns(prompts: Sequence[Prompt]) -> dict[str, list[Any]]:
    """Return a list for each column of the dataset, including `answer`. It has None for rows without the
    column.
    """
    rows = [{**prompt.columns, "answer": prompt.answer, "domain": prompt.domain} for prompt in prompts]
    names = {name: None for row in rows for name in row if name not in RESERVED}
    return {name: [row.get(name) for row in rows] for name in names}


def _accepted_arguments(function: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function accepts, which are all if it has `**kwargs`."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(arguments)
    return {name: value for name, value in arguments.items() if name in parameters}


def _to_json(value: Any) -> Any:
    """Convert a value to JSON types, including values of numpy and torch."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value


def _load(request: Request) -> None:
    load_reward(request["entry_point"])


OPERATIONS = {
    "kind": Operation(function_kind, prepare=_load, is_forked=False),
    "single": Operation(call_single, prepare=_load),
    "async": Operation(call_async, prepare=_load),
    "batch": Operation(call_batch, prepare=_load),
}
