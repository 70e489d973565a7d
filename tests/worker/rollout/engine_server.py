"""A server with vLLM's API on top of this project's sampler, which can be told to misbehave.

    python -m tests.worker.rollout.engine_server [key]

It prints its port on one line. POST /misbehave {"how": "slow", "times": 1} makes the given number of
completion requests fail as described in HOW. GET /seen returns the recorded requests."""

import json
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from backend.base.settings import Settings
from backend.catalog.policies.adapters import ADAPTER_CONFIG, parse_adapter
from backend.catalog.policies.directories import read_config
from backend.config.sections import PolicyConfig
from worker.checkpoints.files import load_weights
from worker.policy.adapter import add_adapter, load_adapter_weights
from worker.policy.model import Policy, load_policy
from worker.rollout.sampler import Decoding, Sampler

HOW = {
    "slow": "answers when it is told to behave otherwise",
    "500": "answers with status 500",
    "cut": "closes the connection in the middle of its answer",
    "stale": "says that it took new weights, and keeps the old ones",
    "lost": "forgets all weights that it was given, as after a restart",
    "wrong_logprobs": "tells log-probabilities of another temperature",
    "other_tokenizer": "counts other tokens",
    "other_model": "has weights of its own",
    "nonsense": "answers with tokens that no vocabulary has",
    "holds": "does not empty its prefix cache",
}


class Engine:
    """A model with its adapters and faults."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.base = self._fresh()
        self.adapters: dict[str, Policy] = {}
        self.version = "default"
        self.how, self.times = "", 0
        self.seen: Counter[str] = Counter()
        self.names: list[str] = []
        self.answering = 0
        """Number of completion requests in progress, including those whose client has disconnected."""
        self.lock = threading.Lock()
        self.told = threading.Event()

    def _fresh(self) -> Policy:
        return load_policy(PolicyConfig(), Settings())

    def fails(self, how: str) -> bool:
        """Return whether this request must fail in the given way, and count it."""
        with self.lock:
            if self.how != how or self.times < 1:
                return False
            self.times -= 1
            return True

    def misbehave(self, how: str, times: int) -> None:
        """Begin to misbehave, or reset the engine if `how` is "", after earlier requests have ended."""
        self.told.set()
        while self.answering:
            time.sleep(0.01)
        self.told.clear()
        self.how, self.times = how, times
        if how in ("", "lost"):
            self.base, self.adapters, self.version = self._fresh(), {}, "default"
        if how == "other_model":
            torch.manual_seed(3)
            for weight in self.base.model.parameters():
                weight.data = torch.randn_like(weight) * 0.1

    def load_adapter(self, name: str, path: Path) -> None:
        """Load an adapter onto a fresh base."""
        policy = self._fresh()
        add_adapter(policy.model, parse_adapter(read_config(path, ADAPTER_CONFIG) or {}), base="tiny")
        load_adapter_weights(policy.model, path)
        self.adapters[name] = policy

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a completion request for one prompt."""
        policy = self.adapters.get(body["model"], self.base)
        decoding = Decoding(body["max_tokens"], body["temperature"], body["top_p"], body["top_k"])
        generator = torch.Generator().manual_seed(body["seed"])
        with self.lock:
            [group] = Sampler(policy).generate([body["prompt"]], body["n"], decoding, generator)
        factor = 3.0 if self.fails("wrong_logprobs") else 1.0
        id_offset = 10**6 if self.fails("nonsense") else 0
        choices = [
            {
                "index": index,
                "text": completion.text,
                "finish_reason": completion.finish_reason,
                "token_ids": [token + id_offset for token in completion.ids.tolist()],
                "prompt_token_ids": body["prompt"],
                "logprobs": {"token_logprobs": [factor * x for x in completion.sampler_logprobs.tolist()]},
            }
            for index, completion in enumerate(group)
        ]
        return {"object": "text_completion", "model": body["model"], "choices": choices}


def make_app(engine: Engine) -> FastAPI:  # noqa: C901 - one route after the other
    """Return the application with vLLM's routes that a run uses."""
    app = FastAPI()

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        engine.seen[request.url.path] += 1
        authorization = request.headers.get("authorization")
        if request.url.path.startswith("/v1") and engine.key and authorization != f"Bearer {engine.key}":
            return JSONResponse({"error": {"message": f"no such key: {authorization}"}}, 401)
        is_counted = request.url.path == "/v1/completions"
        engine.answering += is_counted
        try:
            answer: Response = await call_next(request)
        finally:
            engine.answering -= is_counted
        return answer

    @app.get("/v1/models")
    def models() -> Any:
        base = [{"id": "served-tiny", "parent": None, "max_model_len": 512}]
        return {"data": base + [{"id": name, "parent": "served-tiny"} for name in engine.adapters]}

    @app.post("/tokenize")
    def tokenize(body: dict[str, Any]) -> Any:
        tokens = engine.base.tokenizer.encode(body["prompt"], add_special_tokens=False)
        return {"tokens": [token + engine.fails("other_tokenizer") for token in tokens]}

    @app.post("/v1/completions")
    def completions(body: dict[str, Any]) -> Response:
        if body["model"] != "served-tiny" and body["model"] not in engine.adapters:
            return JSONResponse({"error": {"message": "The model does not exist."}}, 404)
        engine.names.append(body["model"])
        if not body["temperature"] and body["n"] > 1:
            return JSONResponse({"error": {"message": "n must be 1 when using greedy sampling"}}, 400)
        if engine.fails("500"):
            return JSONResponse({"error": {"message": "CUDA error"}}, 500)
        if engine.fails("slow"):
            engine.told.wait()
        content = json.dumps(engine.complete(body)).encode()
        if engine.fails("cut"):
            headers = {"content-length": str(len(content))}
            return StreamingResponse(iter([content[:20]]), headers=headers)
        return Response(content, media_type="application/json")

    @app.post("/v1/load_lora_adapter")
    def load_adapter(body: dict[str, Any]) -> Response:
        if body["lora_name"] in engine.adapters:
            return JSONResponse({"error": {"message": "has already been loaded"}}, 400)
        engine.load_adapter(body["lora_name"], Path(body["lora_path"]))
        return Response("Success: LoRA adapter added successfully")

    @app.post("/v1/unload_lora_adapter")
    def unload_adapter(body: dict[str, Any]) -> Response:
        if engine.adapters.pop(body["lora_name"], None) is None:
            return JSONResponse({"error": {"message": "cannot be found"}}, 404)
        return Response("Success: LoRA adapter removed successfully")

    @app.post("/collective_rpc")
    def collective_rpc(body: dict[str, Any]) -> Any:
        if engine.how not in ("stale", "other_model"):
            load_weights(Path(body["kwargs"]["weights_path"]), engine.base)
        return {"results": [None]}

    @app.post("/reset_prefix_cache")
    def reset_prefix_cache() -> Any:
        return {"success": not engine.fails("holds")}

    @app.post("/update_weight_version")
    def update_weight_version(body: dict[str, Any]) -> Any:
        if engine.how != "stale":
            engine.version = body["new_version"]
        return {"success": True, "new_version": engine.version}

    @app.get("/weight_info")
    def weight_info() -> Any:
        return {"weight_version": engine.version}

    @app.post("/misbehave")
    def misbehave(body: dict[str, Any]) -> Any:
        engine.misbehave(body["how"], body.get("times", 10**9))
        engine.seen.clear()
        engine.names.clear()
        return {}

    @app.get("/seen")
    def list_seen() -> Any:
        return {"paths": engine.seen, "models": engine.names, "adapters": list(engine.adapters)}

    return app


def main() -> None:
    """Serve until killed, or until standard input ends."""
    torch.set_num_threads(1)
    engine = Engine(sys.argv[1] if len(sys.argv) > 1 else "")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # a request that arrives before the server waits
    server = uvicorn.Server(uvicorn.Config(make_app(engine), log_level="critical"))

    def follow() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=follow, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
