"""Tests of five hundred hostile paths and names in every text of every route, with nothing opened outside.

An audit hook of the interpreter reports what the process opens, lists, starts and connects to. Each text
is used in a sixth of the positions that lead to files and in a fortieth of the others; GRPOLAB_ALL_PATHS=1
uses all."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import cast
from urllib.parse import quote, unquote

import pytest

from backend.service.main import Service
from backend.storage.models import Checkpoint
from tests.api_client import TOKEN, client_of_service
from tests.factories import make_run
from tests.fuzz.attacks import HOSTILE_NAMES, HOSTILE_PATHS
from tests.route_list import filled_in

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
CANARY_TEXT = "a canary that nobody may see"
HOST_HEADER = (b"host", b"127.0.0.1:8400")
AUTHORIZATION_HEADER = (b"authorization", b"Bearer " + TOKEN.encode())
JSON_HEADER = (b"content-type", b"application/json")

FILE_EVENTS = {"open", "os.listdir", "os.scandir"}
OTHER_EVENTS = {"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.posix_spawn"}


class Watch:
    """A record of the interpreter's use of files, processes and the network while it is active."""

    def __init__(self):
        self.is_on = False
        self.roots: tuple[str, ...] = ()
        self.opened = 0
        self.escapes: list[tuple[str, str]] = []
        sys.addaudithook(self.hear)

    def hear(self, event, arguments):
        if not self.is_on:
            return
        if event in FILE_EVENTS and isinstance(arguments[0], str | bytes | os.PathLike):
            self.opened += 1
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not (path + "/").startswith(self.roots):
                self.escapes.append((event, path))
        elif event in OTHER_EVENTS:
            self.escapes.append((event, str(arguments)))


@pytest.fixture(scope="module")
def watch():
    """The watch of the process, since an audit hook cannot be removed."""
    return Watch()


@pytest.fixture
def app_and_run(sqlite_url, settings, tmp_path):
    """A service with a model, a dataset and a run with a checkpoint, and canaries next to them."""
    for folder in (settings.state, settings.state.parent, tmp_path):
        (folder / "canary").write_text(CANARY_TEXT)
    settings.datasets_dir.mkdir(parents=True)
    (settings.datasets_dir / "rows.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n' * 3)
    settings.models_dir.mkdir(parents=True)
    with client_of_service(settings, sqlite_url) as client:
        app = cast("Service", client.app)
        with app.state.lab.sessions.begin() as session:
            run = make_run(session)
            row = {
                "path": "s1-a1",
                "sha256": "0" * 64,
                "bytes_total": 2,
                "manifest": {"files": ["config.json"]},
            }
            session.add(Checkpoint(run_id=run.id, step=1, attempt=1, **row))
        folder = settings.artifact_dir(run.id) / "s1-a1"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        yield app, run.id
    (settings.state.parent / "canary").unlink()


def path_positions(document, run):
    """Yield addresses in which one part is open, as (method, path with {}, whether it leads to files)."""
    yield "GET", "/static/{}", True
    yield "GET", f"/api/v1/runs/{run}/files/{{}}", True
    yield "GET", f"/api/v1/runs/{run}/files/s1-a1/{{}}", True
    yield "DELETE", "/api/v1/datasets/{}", True
    yield "GET", "/run/{}", False
    yield "GET", "/{}", False
    for path, methods in document["paths"].items():
        for method in methods:
            for name in ("run_id", "experiment_id", "completion_id"):
                if f"{{{name}}}" in path:
                    hole = path.replace("{name}", "x").replace(f"{{{name}}}", "{}")
                    yield method.upper(), hole, False


def query_positions(document):
    """Yield (method, path, parameter) of every text in a query."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                is_text = "string" in str(parameter["schema"]) and parameter["in"] == "query"
                if is_text and path != "/api/v1/stream":
                    yield method.upper(), filled_in(path.replace("{name}", "{name:path}")), parameter["name"]


CONFIG_POSITIONS = (
    (True, lambda text: {"policy": {"name": text}}),
    (True, lambda text: {"policy": {"name": f"owner/{text}"}}),
    (True, lambda text: {"problems": [{"name": "file", "path": text}]}),
    (True, lambda text: {"problems": [{"name": "file", "path": f"sub/{text}"}]}),
    (False, lambda text: {"policy": {"revision": text}}),
    (False, lambda text: {"preset": text}),
    (False, lambda text: {"problems": [{"name": text}]}),
    (False, lambda text: {"problems": [{"name": "file", "path": "rows.jsonl", "prompt_field": text}]}),
    (False, lambda text: {"problems": [{"name": "file", "path": "rows.jsonl", "instruction": text}]}),
    (False, lambda text: {"problems": [{"name": "hub", "dataset": text}]}),
    (False, lambda text: {"problems": [{"name": "hub", "dataset": "a/b", "subset": text}]}),
    (False, lambda text: {"problems": [{"name": "reasoning_gym", "task": text}]}),
    (False, lambda text: {"problems": [{"name": "plugin", "entry_point": text}]}),
    (False, lambda text: {"rewards": [{"name": text}]}),
    (False, lambda text: {"rewards": [{"name": "plugin", "entry_point": text}]}),
    (False, lambda text: {"objective": {"surrogate": {"type": text}}}),
    (False, lambda text: {text: 1}),
)
"""Positions in a config, as (whether it leads to files, a config with a text there)."""

REFUSED_VARIANTS = [{"name": "a", "preset": "no"}]
"""Variants that are always refused, so that only the names next to them are read."""

BODY_POSITIONS = (
    (lambda text: {"name": text, "variants": REFUSED_VARIANTS}, "/api/v1/experiments"),
    (lambda text: {"name": "x", "variants": [{"name": text, "preset": "no"}]}, "/api/v1/experiments"),
    (
        lambda text: {"name": "x", "tags": [text], "variants": REFUSED_VARIANTS},
        "/api/v1/experiments",
    ),
    (lambda text: {"notes": text, "name": 1}, "/api/v1/runs/nobody"),
)


def build_requests(document, run):
    """Yield (whether it leads to files, a function from a text to method, address, headers and body)."""
    for method, hole, leads in path_positions(document, run):
        yield leads, lambda text, m=method, h=hole: (m, h.replace("{}", as_typed(text)), (), b"")
    for method, path, name in query_positions(document):
        yield False, lambda text, m=method, p=path, n=name: (m, f"{p}?{n}={quote(text)}", (), b"")
    for leads, config in CONFIG_POSITIONS:
        yield leads, lambda text, c=config: ("POST", "/api/v1/validate", (JSON_HEADER,), dump_json(c(text)))
    yield (
        True,
        lambda text: (
            "POST",
            "/api/v1/problems/preview",
            (JSON_HEADER,),
            dump_json(CONFIG_POSITIONS[2][1](text)),
        ),
    )
    for body, path in BODY_POSITIONS:
        method = "POST" if path.endswith("experiments") else "PATCH"
        yield False, lambda text, m=method, p=path, b=body: (m, p, (JSON_HEADER,), dump_json(b(text)))
    header = (
        b"idempotency-key",
        b"last-event-id",
        b"cookie",
        b"x-request-id",
        b"x-forwarded-for",
        b"if-none-match",
    )
    for name in header:
        yield False, lambda text, n=name: ("GET", "/api/v1/runs", ((n, text.encode()[:500]),), b"")


def as_typed(text):
    """Return an address as an attacker sends it, with percent signs and slashes unchanged."""
    return quote(text, safe="/%.;=:@&+$,~!*'()-_")


def dump_json(body):
    return json.dumps(body).encode()


def call(app, method, address, headers, body):
    """Make one request as the server passes it on, and return the response."""
    raw, _, query = address.partition("?")
    sent_messages, messages = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        sent_messages.append(message)

    scope = {
        "type": "http", "method": method, "path": unquote(raw), "raw_path": raw.encode(),
        "query_string": query.encode(), "http_version": "1.1",
        "headers": [
            HOST_HEADER, AUTHORIZATION_HEADER, *headers, (b"content-length", str(len(body)).encode())
        ],
        "client": ("127.0.0.1", 1), "scheme": "http", "root_path": "", "server": ("127.0.0.1", 8400),
    }  # fmt: skip
    return app(scope, receive, send), sent_messages


def test_the_watch_detects_opened_files(watch, tmp_path):
    watch.roots, watch.is_on = (f"{tmp_path}/",), True
    try:
        (tmp_path / "inside").write_text("")
        Path(__file__).read_text()
    finally:
        watch.is_on = False
    assert watch.escapes == [("open", str(Path(__file__)))]
    watch.escapes.clear()


def test_no_path_and_no_name_leads_outside(app_and_run, settings, watch, capsys):
    app, run = app_and_run
    document = app.openapi()
    request_positions = list(build_requests(document, run))
    is_everything = bool(os.environ.get("GRPOLAB_ALL_PATHS"))
    attacks = (*HOSTILE_PATHS, *HOSTILE_NAMES)
    assert (len(set(HOSTILE_PATHS)), len(set(HOSTILE_NAMES))) == (300, 200)
    watch.roots = tuple(
        f"{path.resolve()}/"
        for path in (
            ROOT / "frontend", ROOT / "worker" / "policy", settings.models_dir, settings.datasets_dir,
            settings.state / "runs", settings.state / "cache", Path(sys.prefix), Path(sys.base_prefix),
        )
    )  # fmt: skip
    count, statuses, leaks = 0, set(), []

    async def attack(method, address, headers, body):
        calling, sent_messages = call(app, method, address, headers, body)
        await calling
        content = b"".join(message.get("body", b"") for message in sent_messages)
        statuses.add(sent_messages[0]["status"])
        if CANARY_TEXT.encode() in content or b"root:x:" in content or sent_messages[0]["status"] >= 500:
            leaks.append((method, address, sent_messages[0]["status"]))

    async def attack_all():
        nonlocal count
        for _, build_request in request_positions:  # import lazily imported modules now
            await attack(*build_request("x"))
        watch.is_on = True
        for number, (leads, build_request) in enumerate(request_positions):
            for attack_number, text in enumerate(attacks):
                if is_everything or (number + attack_number) % (6 if leads else 40) == 0:
                    count += 1
                    await attack(*build_request(text))
        watch.is_on = False

    try:
        asyncio.run(attack_all())
    finally:
        watch.is_on = False
    with capsys.disabled():
        summary = f"{len(attacks)} paths and names in {len(request_positions)} places: {count:,} requests"
        print(f"\n{summary}, {watch.opened:,} files opened, {len(watch.escapes)} outside")
    assert (leaks, watch.escapes[:20]) == ([], [])
    assert watch.opened > 0
    assert {200, 404, 422} <= statuses
