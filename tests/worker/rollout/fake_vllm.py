"""A fake of `python -m vllm.entrypoints.openai.api_server` that the trainer starts in tests.

    <script of `install`> -m vllm.entrypoints.openai.api_server --uds PATH --served-model-name NAME ...

It starts quickly because it imports only the standard library, and draws its tokens from the seed of a
request. It has a second process, like vLLM's engine, and writes its arguments and requests to `calls` next
to its socket. The variable VLLM_FAKE makes its start fail as described in START_FAULTS."""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).parents[3]

FAULT_VARIABLE = "VLLM_FAKE"

START_FAULTS = {
    "": "gets ready",
    "dies": "ends with an error, told as vLLM tells it",
    "memory": "finds too little memory",
    "never": "does not get ready",
}

DEATH_MESSAGE = """
(EngineCore pid=17) ERROR [core.py:1] Traceback (most recent call last):
(EngineCore pid=17) ERROR [core.py:1]   File "x.py", line 1, in load
(EngineCore pid=17) ERROR [core.py:1] ValueError: head_dim 16 is not supported; the key is {key}
(APIServer pid=16) Traceback (most recent call last):
(APIServer pid=16) RuntimeError: Engine core initialization failed. See root cause above.
"""

NO_MEMORY_MESSAGE = """
(EngineCore pid=17) ERROR [core.py:1] ValueError: Free memory on device cuda:0 (9.1/79.2 GiB) on startup is \
less than desired GPU memory utilization (0.4, 31.7 GiB).
"""

NEEDED_PARTS = {"/collective_rpc": {"weights"}, "/v1/completions": {"weights", "kv_cache"}}
"""The parts of the engine that must be awake for a request."""


def install(directory: Path) -> str:
    """Write a program that acts as the Python of an environment with vLLM, and return its path."""
    program = directory / "python-with-vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    return str(program)


class Server(ThreadingMixIn, UnixStreamServer):
    """The server and its state."""

    daemon_threads = True

    def __init__(self, path: str, name: str, key: str) -> None:
        super().__init__(path, Handler)
        self.name, self.key, self.beside = name, key, Path(path).parent
        self.asleep: set[str] = set()
        self.adapters: list[str] = []
        self.version = ""
        self.has_weights = True

    def note(self, call: Any) -> None:
        """Append a line to the record of calls."""
        with (self.beside / "calls").open("a", encoding="utf-8") as file:
            file.write(json.dumps(call) + "\n")

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Return the response to a request, or None if there is no such route."""
        match method, path:
            case "GET", "/health":
                return {}
            case "GET", "/v1/models":
                base = [{"id": self.name, "parent": None}]
                return {"data": base + [{"id": adapter, "parent": self.name} for adapter in self.adapters]}
            case "GET", "/weight_info":
                return {"weight_version": self.version}
            case "POST", "/sleep":
                self.asleep, self.has_weights = {"weights", "kv_cache"}, query["level"] == ["1"]
            case "POST", "/wake_up":
                self.asleep -= set(query["tags"])
            case "POST", "/collective_rpc":
                self.has_weights = Path(body["kwargs"]["weights_path"]).is_dir()
            case "POST", "/update_weight_version":
                self.version = body["new_version"]
            case "POST", "/v1/load_lora_adapter":
                self.adapters.append(body["lora_name"])
            case "POST", "/v1/unload_lora_adapter":
                self.adapters.remove(body["lora_name"])
            case "POST", "/v1/completions":
                assert self.has_weights
                return completions(body)
            case "POST", "/reset_prefix_cache":
                pass
            case _:
                return None
        return {"success": True}


def completions(body: Any) -> Any:
    """Return completions of maximum length, made of digits in the tiny policy's vocabulary."""
    draw = random.Random(body["seed"])
    count = body["max_tokens"]
    choices = [
        {
            "index": index,
            "finish_reason": "length",
            "token_ids": [draw.randint(5, 9) for _ in range(count)],
            "logprobs": {"token_logprobs": [-2.0] * count},
        }
        for index in range(body["n"])
    ]
    return {"model": body["model"], "choices": choices}


class Handler(BaseHTTPRequestHandler):
    """A request handler that forwards to the server."""

    server: Server

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        url = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        query = f"?{url.query}" if url.query else ""
        if method == "POST":
            self.server.note(f"{url.path}{query}")
        status, document = 200, None
        if url.path.startswith("/v1") and self.headers["authorization"] != f"Bearer {self.server.key}":
            status = 401
        elif self.server.asleep & NEEDED_PARTS.get(url.path, set()):
            status = 400
        else:
            body = json.loads(content) if content else None
            document = self.server.answer(method, url.path, parse_qs(url.query), body)
            status = 404 if document is None else 200
        answer = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def address_string(self) -> str:
        """Return a fixed name, because a unix socket has no client address."""
        return "somebody"

    def log_request(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Start like vLLM, or fail if requested."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", dest="module")
    for name in ("--uds", "--served-model-name"):
        parser.add_argument(name, required=True)
    options, other_arguments = parser.parse_known_args()
    fault, key = os.environ.get(FAULT_VARIABLE, ""), os.environ["VLLM_API_KEY"]
    assert options.module == "vllm.entrypoints.openai.api_server"
    assert key not in " ".join(sys.argv)
    if fault in ("dies", "memory"):
        print(DEATH_MESSAGE.format(key=key) if fault == "dies" else NO_MEMORY_MESSAGE, flush=True)
        sys.exit(1)
    second = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"])

    def end(*_: object) -> None:
        second.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    if fault == "never":
        time.sleep(3600)
    server = Server(options.uds, options.served_model_name, key)
    server.note({"arguments": other_arguments, "variables": dict(os.environ)})
    server.serve_forever()


if __name__ == "__main__":
    main()
