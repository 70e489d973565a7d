"""Tests of pushes to a hub, against a small local server with the routes that the hub's client needs."""

import base64
import json
import os
import subprocess
import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from backend.service.cli import main

TOKEN = "hf_" + "s" * 34


class Server(ThreadingHTTPServer):
    """A server that records its requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Hub)
        self.seen = []


class Hub(BaseHTTPRequestHandler):
    """A hub that already has one repository."""

    server: Server

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.path, self.headers.get("Authorization"), body))
        host = f"http://127.0.0.1:{self.server.server_port}"
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Invalid credentials"})
        if self.path == "/api/repos/create":
            name = json.loads(body)["name"]
            url = {"url": f"{host}/me/{name}"}
            return self.answer(409, {"error": "exists", **url}) if name == "old" else self.answer(200, url)
        if "/spiteful/" in self.path or self.path.startswith("/api/models/me/spiteful"):
            return self.answer(500, {"error": f"\x1b[2J {self.headers.get('Authorization')} \u202egone"})
        if "/me/moved/" in self.path:
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/stolen")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if "/preupload/" in self.path:
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                     for file in json.loads(body)["files"]]  # fmt: skip
            return self.answer(200, {"files": files})
        if "/me/cut/commit/" in self.path:
            self.send_response(200)
            self.send_header("Content-Length", "500")
            self.end_headers()
            self.wfile.write(b'{"success": tr')
            self.close_connection = True
            return None
        if "/commit/" in self.path:
            commit = {"success": True, "commitOid": "a" * 40, "commitUrl": f"{host}/me/new/commit/{'a' * 40}"}
            return self.answer(200, commit)
        return self.answer(200, {"errors": [], "warnings": []})  # validate-yaml

    def do_GET(self):
        self.answer(200, {"id": "me/new", "sha": "b" * 40, "siblings": []})

    def answer(self, status, document):
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, state_dir):
    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, variable in {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_TOKEN": TOKEN,
        "HF_ONLINE": "1",
        "HF_HUB_DISABLE_XET": "1",
        "STATE_DIR": str(state_dir),
    }.items():
        monkeypatch.setenv(name, variable)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def model(tmp_path):
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    (directory / "README.md").write_text("---\nlicense: unknown\n---\n# Card\n")
    (directory / "notes.pkl").write_bytes(b"evil")
    return directory


def test_a_push_creates_a_private_repository_with_the_exported_files(hub, model, capsys):
    assert main(["push", str(model), "me/new"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.strip().endswith("/me/new")
    [creation_request] = [json.loads(body) for path, _, body in hub.seen if path == "/api/repos/create"]
    assert creation_request["name"] == "new"
    assert creation_request.get("private") is True or creation_request.get("visibility") == "private"
    [commit] = [body for path, _, body in hub.seen if "/commit/main" in path]
    lines = [json.loads(line) for line in commit.splitlines()]
    files = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"])
        for line in lines
        if line["key"] == "file"
    }
    assert files.keys() == {"config.json", "model.safetensors", "README.md"}
    assert files["model.safetensors"] == b"weights"
    assert not any(TOKEN.encode() in body for _, _, body in hub.seen)


def test_an_existing_repository_is_unchanged_unless_requested(hub, model, capsys):
    assert main(["push", str(model), "me/old"]) == 1
    assert "me/old exists already: choose another name, or add --existing" in capsys.readouterr().err
    assert not any("/commit/" in path for path, _, _ in hub.seen)
    assert main(["push", str(model), "me/old", "--existing"]) == 0, capsys.readouterr().err


def test_a_wrong_token_is_refused_and_not_shown(hub, model, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_and_secret")
    assert main(["push", str(model), "me/new"]) == 1
    error = capsys.readouterr().err
    assert "does not accept the token" in error
    assert "secret" not in error


def test_an_unreachable_hub_is_reported_in_one_sentence(hub, model, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["push", str(model), "me/new"]) == 1
    error = capsys.readouterr().err
    assert "the hub at http://127.0.0.1:9 cannot be reached" in error
    assert len(error.splitlines()) == 1


def test_the_token_is_not_sent_to_another_address_after_a_redirect(hub, model, capsys):
    assert main(["push", str(model), "me/moved"]) == 1
    tokens_elsewhere = [token for path, token, _ in hub.seen if path == "/stolen"]
    assert not any(tokens_elsewhere), "the token went to another host"
    assert TOKEN not in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        "me/new\n",
        "me/\x1b[2J",
        "-x",
        "--public",
        "me/a..b",
        "http://evil/x",
        "me/new/../old",
        "",
        "a/b/c",
        "me/" + "x" * 200,
    ],
)
def test_hostile_names_reach_neither_hub_nor_terminal(hub, model, capsys, name):
    with pytest.raises(SystemExit) if name.startswith("-") else nullcontext():
        assert main(["push", str(model), name]) == 1
    output = capsys.readouterr()
    assert "\x1b" not in output.err + output.out
    assert not any("/commit/" in path for path, _, _ in hub.seen)


@pytest.mark.parametrize(("name", "reason"), [("HF_ONLINE", "HF_ONLINE is off"), ("HF_TOKEN", "no token")])
def test_without_permission_or_token_nothing_is_sent(hub, model, capsys, monkeypatch, name, reason):
    monkeypatch.delenv(name)
    assert main(["push", str(model), "me/new"]) == 1
    assert reason in capsys.readouterr().err
    assert not hub.seen


def test_the_token_is_not_in_command_lines_or_environments(hub, model, monkeypatch):
    commands = []
    real_run = subprocess.run

    def run(arguments, **options):
        commands.append((arguments, options["env"]))
        return real_run(arguments, **options)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["push", str(model), "me/new"]) == 0
    [(arguments, environment)] = commands
    assert not any(TOKEN in text for text in [*arguments, *environment.values()])
    assert os.environ["HF_TOKEN"] == TOKEN
