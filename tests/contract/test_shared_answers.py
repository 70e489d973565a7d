"""Tests of shared responses: entity tags, invalidation, encodings and concurrent readers."""

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import update
from starlette.datastructures import URL, Headers

from backend.http.shared_responses import SharedResponses
from backend.metrics.store import write_points
from backend.storage.models import Run
from tests.factories import make_group, make_run, seeded_metrics, write_metric
from tests.waiting import wait_for


@pytest.fixture
def trained(database):
    with database.sessions.begin() as session:
        run = make_run(session, name="run", variant="v", status="finished")
        write_points(session, run.id, 1, seeded_metrics(3000, seed=0, spike_at=1777).items())
    return run


def request_series(client, run, tag="", **params):
    params = {"runs": run.id, "metrics": "loss/total", **params}
    return client.get("/api/v1/series", params=params, headers={"If-None-Match": tag} if tag else {})


def test_a_reader_with_the_current_response_gets_not_modified(client, trained):
    first_response = request_series(client, trained)
    assert first_response.headers["cache-control"] == "private, no-cache"
    second_response = request_series(client, trained, tag=f'"other", W/{first_response.headers["etag"]}')
    assert (second_response.status_code, second_response.content) == (304, b"")
    assert second_response.headers["etag"] == first_response.headers["etag"]


def test_a_new_point_of_the_run_or_its_parent_changes_the_tag(client, database, trained):
    with database.sessions.begin() as session:
        fork = make_run(session, name="fork", parent_run=trained.id, fork_step=10, steps=20)
    tags = {request_series(client, fork).headers["etag"]}
    for changed_run in (fork, trained):
        with database.sessions.begin() as session:
            write_metric(session, changed_run, "loss/total", {5000: 7.0})
        tags.add(request_series(client, fork).headers["etag"])
    assert len(tags) == 3


@pytest.mark.parametrize("x", ["step", "wall"])
def test_the_compact_response_has_the_same_content(client, trained, x):
    full_series, compact_series = (
        request_series(client, trained, x=x, compact=compact, smoothing=0.5).json()["series"][0]
        for compact in (False, True)
    )
    assert np.cumsum(compact_series["steps"]).tolist() == full_series["steps"]
    assert compact_series.get("x") == (None if x == "step" else full_series["x"])
    np.testing.assert_allclose(compact_series["values"], full_series["values"], rtol=1e-7)


@pytest.mark.parametrize(
    ("accepted", "encoding"), [("gzip, deflate, br, zstd", "zstd"), ("gzip", "gzip"), ("identity", None)]
)
def test_a_response_is_compressed_in_an_accepted_encoding(client, trained, accepted, encoding):
    params = {"runs": trained.id, "metrics": "loss/total"}
    headers = {"Accept-Encoding": accepted}
    with client.stream("GET", "/api/v1/series", params=params, headers=headers) as response:
        assert response.headers.get("content-encoding") == encoding
        sent_bytes = sum(map(len, response.iter_raw()))
    uncompressed = request_series(client, trained).content
    assert sent_bytes == len(uncompressed) if encoding is None else sent_bytes < len(uncompressed) / 2


def test_rollouts_have_a_tag_that_changes_with_their_run(client, database):
    with database.sessions.begin() as session:
        run = make_run(session)
        make_group(session, run)
    first = client.get("/api/v1/rollouts", params={"run": run.id})
    tag = {"If-None-Match": first.headers["etag"]}
    assert client.get("/api/v1/rollouts", params={"run": run.id}, headers=tag).status_code == 304
    with database.sessions.begin() as session:
        session.execute(update(Run).where(Run.id == run.id).values(last_step=99))
    assert client.get("/api/v1/rollouts", params={"run": run.id}, headers=tag).status_code == 200


def request(path="/a"):
    return SimpleNamespace(app=SimpleNamespace(version="1"), url=URL(path), headers=Headers({}))


def test_concurrent_readers_share_the_work():
    answers, thread_ids, calls, bodies = SharedResponses(), [], [], []

    def make():
        calls.append(threading.get_ident())
        wait_for(lambda: len(thread_ids) == 8)
        return {"x": 1}

    def read_shared():
        thread_ids.append(threading.get_ident())
        bodies.append(answers.answer(request(), 1, make).body)

    readers = [threading.Thread(target=read_shared) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert (bodies, len(calls)) == ([b'{"x":1}'] * 8, 1)


def test_a_failure_is_not_cached_and_memory_is_bounded():
    answers = SharedResponses(max_bytes=1_000)
    with pytest.raises(ZeroDivisionError):
        answers.answer(request(), 1, lambda: 1 / 0)
    sizes = []

    def text(size):
        sizes.append(size)
        return "x" * size

    for state, size in ((1, 600), (1, 600), (2, 600), (1, 600), (3, 5_000), (3, 5_000)):
        assert len(answers.answer(request(), state, partial(text, size)).body) == size + 2
    assert sizes == [600, 600, 600, 5_000, 5_000]
