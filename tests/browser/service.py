"""Run the real service in a thread of this process, with runs in its database as a trainer leaves them."""

import asyncio
import itertools
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pytest
import uvicorn

from backend.base.settings import Settings
from backend.http.timeout import RequestTimeout
from backend.metrics.store import write_points
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.store import pack_groups, write_groups
from backend.runs import leases, lifecycle
from backend.runs.checkpoints import add_checkpoint
from backend.runs.store import append_log
from backend.service import main
from backend.service.main import create_app
from backend.service.process.server import server_config
from backend.service.process.sockets import listen
from backend.storage.migrate import upgrade
from tests.api_client import close_connections

TOKEN = "a-token-for-tests"
VIEWER_TOKEN = "a-viewers-token-for-tests"
REQUEST_TIMEOUT_SECONDS = 300
"""A long timeout, so that no page is answered with 503 on a busy machine."""
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>\u202egnp.exe\u200b\x07 \\boxed{233}'


class Service:
    """A running service and its database."""

    trained = failed = waiting = older = hostile = imported = experiment = ""
    """Ids of the runs that the tests use."""
    cells: list[str]
    """Ids of the runs of a grid, if a test has one."""

    def __init__(self, base, sessions):
        self.base = base
        self.sessions = sessions
        self.client = httpx.Client(
            base_url=f"{base}/api/v1", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
        )

    def get(self, path, **params):
        """Return the body of a successful GET below /api/v1."""
        return self.client.get(path, params=params).raise_for_status().json()

    def launch(self, name, **variant):
        """Queue a run and return its id."""
        body = {"name": name, "base": {"steps": 30}, "variants": [{"name": "grpo", **variant}], "seeds": [0]}
        answer = self.client.post("/experiments", json=body).raise_for_status().json()
        return answer["runs"][0]["id"]

    def train(self, run_id, steps, *, end, reason=""):
        """Store what a trainer would: points, rollouts, output, a checkpoint and an end."""
        with self.sessions.begin() as session:
            claim = lifecycle.claim_run(session, "test-worker", "test-host")
            assert claim is not None
            assert claim.run_id == run_id
            lifecycle.begin_attempt(session, run_id, claim.attempt, -1)
            for step in range(steps + 1):
                write_points(session, run_id, claim.attempt, [(step, make_metrics(step))])
                kind = "train" if step else "eval"
                groups = [make_group(kind, step, index) for index in range(3)]
                write_groups(session, pack_groups(run_id, step, claim.attempt, groups))
            leases.fence(session, run_id, claim.attempt, last_step=steps, summary=make_summary(steps))
            append_log(session, run_id, claim.attempt, 1, "step 1\nstep 2\n\x1b[31mred\x1b[0m\n")
            add_checkpoint(session, make_checkpoint_row(run_id, claim.attempt, steps))
            lifecycle.finish_run(session, run_id, claim.attempt, end, reason)


def make_metrics(step):
    """Return metrics that rise with the step, with one value that is not a number."""
    return {
        "reward/mean": 0.1 * step,
        "loss/total": -0.25,
        "eval/accuracy": 0.2 + 0.05 * step,
        "policy/entropy": 1.0 - 0.1 * step,
        "optim/grad_norm": float("nan") if step == 2 else 0.5,
    }


def make_summary(steps):
    """Return the summary document as the recorder writes it."""
    last = {
        name: "NaN" if math.isnan(metric_value) else metric_value
        for name, metric_value in make_metrics(steps).items()
    }
    return {"step": steps, "last": last, "best": {}}


def make_checkpoint_row(run_id, attempt, step):
    """Return the row of a checkpoint."""
    return {
        "run_id": run_id, "attempt": attempt, "step": step, "path": f"checkpoints/{step}", "sha256": "0" * 64,
        "bytes_total": 3_000_000, "manifest": {"files": ["model.safetensors"], "accuracy": 0.4},
    }  # fmt: skip


def make_group(kind, step, index):
    """Return a group whose first completion is right and whose second is wrong and truncated.

    The completion of the third prompt is hostile."""
    is_hostile = index == 2
    right_completion = make_completion(
        HOSTILE if is_hostile else "<think>85+60=145</think>\\boxed{233}", correct=True
    )
    wrong_completion = make_completion("<think></think><think>", correct=False)
    return GroupRecord(
        kind=kind, prompt_index=index, prompt_id=f"sums:{step}-{index}", problem="sums", domain="math",
        prompt=f"85+{60 + index}+88=?", answer="233", completions=[right_completion, wrong_completion],
    )  # fmt: skip


def make_completion(text, *, correct):
    """Return a completion whose tokens are its characters, each less probable than the previous one."""
    count, loss_sign = len(text), -1.0 if correct else 0.5
    return CompletionRecord(
        text=text, token_strings=list(text), token_ids=list(range(count)), reward=float(correct),
        rewards={"correctness": float(correct)}, advantage=1.0 if correct else -1.0,
        finish_reason="stop" if correct else "length", correct=correct,
        flags=() if correct else ("truncated", "wrong"),
        arrays={
            "logprob": -np.arange(count, dtype=np.float32), "entropy": np.full(count, 0.5, np.float32),
            "policy_logprob": -np.arange(count, dtype=np.float32), "ratio": np.ones(count, np.float32),
            "clipped": np.zeros(count, np.float32), "loss": np.full(count, loss_sign / count / 6, np.float32),
            "gradient": np.full(count, loss_sign / count / 6, np.float32),
        },
    )  # fmt: skip


NARROW_VIEWPORT = (400, "dark")
WIDE_VIEWPORT = pytest.param((1400, "light"), marks=pytest.mark.nightly)
"""Width and colour scheme of a page. Other tests have wide light pages, so the gate uses narrow dark ones."""


def viewports(*widths):
    """Return (width, scheme) of pages. The gate only uses the narrowest, in dark; the others run at night."""
    gate = (widths[0], "dark")
    viewports = itertools.product(widths, ("light", "dark"))
    return [pytest.param(*size, marks=() if size == gate else pytest.mark.nightly) for size in viewports]


def open_context(browser, service, width=1400, scheme="light", *, token=TOKEN, height=1000):
    """Open a browser context that is logged in to the service."""
    return browser.new_context(
        base_url=service.base,
        color_scheme=scheme,
        viewport={"width": width, "height": height},
        extra_http_headers={"Authorization": f"Bearer {token}"},
    )


END_SECONDS = 60
"""Maximum time for a service to end before its tasks are cancelled."""


async def _serve(
    server: uvicorn.Server, listener: socket.socket, loops: list[asyncio.AbstractEventLoop]
) -> None:
    """Serve until told to exit, and then end the streams that a busy browser still reads."""
    loops.append(asyncio.get_running_loop())
    await server.serve([listener])
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)


@contextmanager
def running_service(directory: Path, url: str = "", **changes: Any) -> Iterator[Service]:
    """Run a service on a free port, with a fresh database unless one is given."""
    url = url or f"sqlite:///{directory / 'grpolab.db'}"
    upgrade(url)
    (listener,) = listen(Settings().model_copy(update={"port": 0}))
    port = listener.getsockname()[1]
    settings = Settings(
        state_dir=directory, models_dir=directory / "models", datasets_dir=directory / "datasets",
        grpolab_token=TOKEN, grpolab_viewer_token=VIEWER_TOKEN, database_url=url,
        port=port, **changes,
    ).model_copy(update={"broker_url": "memory://"})  # fmt: skip
    app = create_app(settings)
    with patch.object(main, "RequestTimeout", partial(RequestTimeout, seconds=REQUEST_TIMEOUT_SECONDS)):
        app.middleware_stack = app.build_middleware_stack()
    config = server_config(app, settings, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    pool = app.state.lab.engine.pool
    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(_serve(server, listener, loops)), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        service = Service(f"http://127.0.0.1:{port}", app.state.lab.sessions)
        yield service
        service.client.close()
    finally:
        server.should_exit = True
        thread.join(END_SECONDS)
        assert not thread.is_alive(), [*map(str, asyncio.all_tasks(loops[0]))]
        close_connections(pool)
