"""Tests of the size estimate of a hub model before launch, against a local server that acts like the hub."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from safetensors.torch import save

from backend.catalog.policies import hub_models
from backend.catalog.policies.hub_models import HubModelError, hub_model

NAME, COMMIT = "owner/model", "a" * 40
CONFIG = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "vocab_size": 32,
    "max_position_embeddings": 4096,
}
FIRST_SHARD = {"model.embed_tokens.weight": torch.zeros(32, 8), "lm_head.weight": torch.zeros(32, 8)}
SECOND_SHARD = {
    "model.layers.0.self_attn.q_proj.weight": torch.zeros(8, 8),
    "model.layers.0.mlp.down_proj.weight": torch.zeros(8, 16),
}
VALUE_COUNT = 2 * 32 * 8 + 8 * 8 + 8 * 16
SHARDED_FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(
        {
            "weight_map": dict.fromkeys(FIRST_SHARD, "1.safetensors")
            | dict.fromkeys(SECOND_SHARD, "2.safetensors")
        }
    ).encode(),
    "1.safetensors": save(FIRST_SHARD),
    "2.safetensors": save(SECOND_SHARD),
}
SINGLE_FILE = {
    "config.json": SHARDED_FILES["config.json"],
    "model.safetensors": save(FIRST_SHARD | SECOND_SHARD),
}


class Hub(ThreadingHTTPServer):
    """A server of files under /owner/model/resolve/<commit>/ that supports byte ranges like the hub."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.status = {}, [], 0


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self):
        base, _, file = self.path.rpartition("/")
        self.server.asked.append(file)
        content = self.server.files.get(file) if base == f"/{NAME}/resolve/{COMMIT}" else None
        if self.server.status or content is None:
            self.send_error(self.server.status or 404)
            return
        last = int(self.headers["Range"].removeprefix("bytes=0-"))
        self.send_response(206)
        self.end_headers()
        self.wfile.write(content[: last + 1])

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr(hub_models, "_answers", {})
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("files", [SHARDED_FILES, SINGLE_FILE], ids=["shards", "one file"])
def test_config_and_shapes_are_read_once(hub, files):
    hub.files = files
    model = hub_model(NAME, COMMIT)
    assert model.config == CONFIG
    assert {weight.name: weight.shape for weight in model.weights} == {
        name: tuple(weight.shape) for name, weight in (FIRST_SHARD | SECOND_SHARD).items()
    }
    request_count = len(hub.asked)
    assert hub_model(NAME, COMMIT) is model
    assert len(hub.asked) == request_count


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "the hub has no public model 'owner/model' with a config.json"),
        ({"config.json": b"[]"}, "with a config.json"),
        ({"config.json": SINGLE_FILE["config.json"]}, "the hub has no model.safetensors of 'owner/model'"),
        (SINGLE_FILE | {"model.safetensors": b"\xff" * 100}, "has no header of a safetensors file"),
        (SINGLE_FILE | {"model.safetensors": b"abc"}, "has no header of a safetensors file"),
        (SINGLE_FILE | {"model.safetensors": (50).to_bytes(8, "little") + b"{"}, "is not JSON"),
        (SHARDED_FILES | {"model.safetensors.index.json": b"{}"}, "names no weight files"),
        (
            SHARDED_FILES | {"model.safetensors.index.json": b'{"weight_map": {"a": ["b"]}}'},
            "names no weight files",
        ),
        (
            SHARDED_FILES | {"model.safetensors.index.json": rb'{"weight_map": {"a": "\ud800.safetensors"}}'},
            "names no weight files",  # an address cannot contain a lone surrogate
        ),
        (SHARDED_FILES | {"model.safetensors.index.json": b"[" * 100_000}, "is not JSON"),
    ],
)
def test_missing_or_invalid_files_of_the_hub_are_reported(hub, files, reason):
    hub.files = files
    with pytest.raises(HubModelError, match=reason):
        hub_model(NAME, COMMIT)


def test_a_failing_or_unreachable_hub_is_asked_at_most_once_a_minute(hub, monkeypatch):
    hub.status = 503
    for _ in range(3):
        with pytest.raises(HubModelError, match="the Hugging Face hub responded with 503"):
            hub_model(NAME, COMMIT)
    assert hub.asked == ["config.json"]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubModelError, match=r"cannot be reached.*unknown until its files are here"):
        hub_model(NAME, "b" * 40)


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_cached_model_is_read_from_the_cache(hub, tmp_path, is_complete):
    hub.files = SHARDED_FILES
    directory = tmp_path / "cache" / "models--owner--model" / "snapshots" / COMMIT
    directory.mkdir(parents=True)
    for name, content in SHARDED_FILES.items():
        if is_complete or name != "2.safetensors":
            (directory / name).write_bytes(content)
    assert sum(weight.values for weight in hub_model(NAME, COMMIT).weights) == VALUE_COUNT
    assert bool(hub.asked) != is_complete
