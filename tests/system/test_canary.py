"""Test that planted secrets do not appear in SQL, files, logs, responses or process titles."""

import json
import os
import re
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
import pytest
from sqlalchemy import make_url

from backend.runs.queue.broker import talk
from tests.ports import free_port
from tests.servers import shut_down, start_redis
from tests.system.lab import ROOT, TOKEN, Client, Program, command_lines
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

DATABASE_PASSWORD = "canary/of the database"
BROKER_PASSWORD = "canary-of-the-broker"
HUB_TOKEN = "hf_" + "CanaryOfTheHub" * 3
OTHER_TOKEN = "canary-of-another-service"
CANARIES = [
    DATABASE_PASSWORD,
    quote(DATABASE_PASSWORD, safe=""),
    BROKER_PASSWORD,
    HUB_TOKEN,
    OTHER_TOKEN,
    TOKEN,
]

PLUGIN_SOURCE = """
import os, sys

def leaking(prompt, text):
    everything = " ".join(f"{name}={value}" for name, value in os.environ.items())
    print(everything, file=sys.stderr)
    print("x" * 32_700 + everything, file=sys.stderr)
    print("DATABASE_URL" in os.environ, "SOME_API_KEY" in os.environ, file=sys.stderr)
    raise RuntimeError("cannot log in with " + os.environ["HF_TOKEN"])
"""


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "leaky.py").write_text(PLUGIN_SOURCE)
    info = tmp_path / "leaky-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leaky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpolab.rewards]\nleaking = leaky:leaking\n")
    return tmp_path


@pytest.fixture
def broker_url(state_dir):
    server = start_redis(state_dir / "redis")
    socket = Path(server.url.partition("://")[2])
    assert talk(socket, f"CONFIG SET requirepass {BROKER_PASSWORD}\r\n".encode()) == b"+OK\r\n"
    yield f"redis+socket://:{BROKER_PASSWORD}@{socket}"
    shut_down(server.pid)


@pytest.fixture
def programs(state_dir, plugin, broker_url, postgres_url):
    """A service and a worker whose every secret is a canary."""
    port = free_port()
    settings = {
        "DATABASE_URL": make_url(postgres_url).set(password=DATABASE_PASSWORD).render_as_string(False),
        "BROKER_URL": broker_url,
        "PORT": port,
        "HF_TOKEN": HUB_TOKEN,
        "HF_ONLINE": True,
        "SOME_API_KEY": OTHER_TOKEN,
        "PLUGIN_PERMISSIONS": json.dumps({"leaking": {"variables": ["HF_TOKEN", "SOME_API_KEY"]}}),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{plugin}",
        "LOG_FORMAT": "json",
        "WORKER_SLOTS": 1,
    }
    running_programs = [Program(state_dir, name, name, **settings) for name in ("serve", "worker")]
    client = Client(port)
    wait_for(client.is_alive)
    wait_for(lambda: client.get("/workers")["items"])
    yield client, running_programs, settings
    for program in running_programs:
        program.kill_all()


def everything_in(postgres_url):
    """Yield every row of every table as text."""
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            for (row,) in connection.execute(f'SELECT t::text FROM "{table}" t'.encode()):  # noqa: S608
                yield table, row


def answers(client, run_ids):
    """Yield everything that the service returns to its operator."""
    paths = ["/metrics", "/readyz", "/openapi.json"]
    paths += [f"/api/v1/{name}" for name in ("runs", "experiments", "workers", "queue", "config-schema")]
    for run_id in run_ids:
        run_path = f"/api/v1/runs/{run_id}"
        paths += [
            run_path,
            f"{run_path}/events",
            f"{run_path}/logs",
            f"{run_path}/checkpoints",
            f"{run_path}/metrics.csv",
        ]
        paths += [f"/api/v1/rollouts?run={run_id}"]
    for path in paths:
        yield path, str(client.call("GET", path)[1])
    for text in CANARIES:
        body = {"name": "n", "base": {"policy": {"name": text}}, "variants": [{"name": "v"}], "seeds": [0]}
        yield "echo of a config", str(client.call("POST", "/api/v1/experiments", body)[1])
        yield "echo of a parameter", str(client.call("GET", f"/api/v1/runs?limit={quote(text)}")[1])
        yield "echo of a path", str(client.call("GET", f"/api/v1/runs/{quote(text, safe='')}")[1])


def leaks(text):
    return [canary for canary in CANARIES if canary in text]


def test_a_planted_secret_appears_nowhere(programs, state_dir, postgres_url):
    client, running_programs, settings = programs
    good_run = client.launch()
    bad_run = client.launch(rewards=[{"name": "plugin", "entry_point": "leaking"}])
    client.wait_for_status(good_run, "finished")
    run = client.wait_for_status(bad_run, "failed")
    assert "cannot log in with [secret]" in run["reason"]
    log = str(client.call("GET", f"/api/v1/runs/{bad_run}/logs")[1])
    assert "HF_TOKEN=[secret]" in log
    assert "False True" in log
    link = Program(state_dir, "link", "link", **settings)
    link.process.wait()
    (ticket,) = re.findall(r"token=(\S+)", link.output_text())
    assert client.call("GET", f"/?token={ticket}")[0] == 303
    link.output.unlink()  # the secret that was requested and shown

    family = [
        process
        for program in running_programs
        for process in (psutil.Process(program.process.pid), *program.family())
    ]
    titles = [" ".join(line) for _, line in command_lines(family)]
    assert len(titles) >= len(running_programs)
    assert [title for title in titles if leaks(title)] == []
    assert {
        location: leaked_secrets
        for location, text in answers(client, [good_run, bad_run])
        if (leaked_secrets := leaks(text))
    } == {}
    assert {
        table: leaked_secrets for table, row in everything_in(postgres_url) if (leaked_secrets := leaks(row))
    } == {}
    files = [path for path in state_dir.rglob("*") if path.is_file()]
    assert len(files) > 5
    texts = {path.name: path.read_bytes().decode("utf-8", "replace") for path in files}
    assert {name: leaked_secrets for name, text in texts.items() if (leaked_secrets := leaks(text))} == {}
    assert not [name for name, text in texts.items() if ticket in text]
