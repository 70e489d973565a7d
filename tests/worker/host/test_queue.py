import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty

import pytest

from backend.base.errors import Unavailable
from backend.base.settings import Settings
from backend.runs.queue.broker import (
    choose_broker,
    prepare_broker,
    private_directory,
    queue_folder,
    socket_path,
)
from backend.runs.queue.doorbell import TASK_NAME, ring, worker_queue
from tests.worker.host.conftest import start_broker


@pytest.fixture
def patient(monkeypatch):
    """Allow more than half a second per launch, since the machine may be busy."""
    monkeypatch.setattr("backend.runs.queue.doorbell.MAX_RING_SECONDS", 10.0)


def take_doorbells(settings):
    """Take all doorbell messages from the queue."""
    app, names = worker_queue(settings), []
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(app.conf.task_queues[0])
        while True:
            try:
                message = queue.get_nowait()
            except queue.Empty:
                queue.close()
                return names
            message.ack()
            names.append(message.headers["task"])


def test_the_embedded_broker_listens_on_a_private_socket_only(settings, broker):
    path = choose_broker(settings).socket
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert list(choose_broker(settings).command[1:3]) == ["--port", "0"]


@pytest.mark.usefixtures("patient")
def test_without_valkey_and_redis_the_queue_uses_files(settings, monkeypatch):
    monkeypatch.setattr("backend.runs.queue.broker.find_server", lambda: None)
    prepare_broker(choose_broker(settings), settings)
    assert ring(settings)
    assert len(list((settings.state / "broker" / "queue").iterdir())) == 1
    assert take_doorbells(settings) == [TASK_NAME]


def test_a_long_state_path_gets_a_short_socket(tmp_path):
    settings = Settings(state_dir=tmp_path / ("long" * 40))
    assert len(os.fsencode(socket_path(settings))) <= 107
    assert socket_path(settings) == socket_path(settings)
    assert socket_path(settings) != socket_path(Settings(state_dir=tmp_path / ("other" * 40)))


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(Unavailable, match="is owned by another user"):
        private_directory(tmp_path)


def test_a_dead_broker_causes_no_error(settings):
    assert not ring(settings)


def test_the_wait_for_a_silent_broker_ends(state_dir):
    with socket.socket() as silent_server:
        silent_server.bind(("127.0.0.1", 0))
        silent_server.listen()
        settings = Settings(
            state_dir=state_dir, broker_url=f"redis://127.0.0.1:{silent_server.getsockname()[1]}/0"
        )
        assert [ring(settings) for _ in range(3)] == [False] * 3


@pytest.mark.usefixtures("patient")
def test_the_doorbell_works_again_when_the_broker_is_back(settings, broker):
    assert ring(settings)
    broker.kill()
    broker.wait()
    assert not ring(settings)
    second_broker = start_broker(settings)
    try:
        assert ring(settings)
    finally:
        second_broker.kill()
        second_broker.wait()


@pytest.mark.usefixtures("patient")
def test_a_broker_left_over_by_a_killed_launcher_is_replaced(settings, broker):
    second_broker = start_broker(settings)
    try:
        assert broker.wait(60) == 0
        assert ring(settings)
    finally:
        second_broker.kill()
        second_broker.wait()


@pytest.fixture
def files(tmp_path):
    settings = Settings(state_dir=tmp_path, broker_url="filesystem://")
    prepare_broker(choose_broker(settings), settings)
    return settings


@contextmanager
def open_channel(settings):
    with worker_queue(settings).connection() as connection:
        yield connection.default_channel


def test_every_message_of_a_file_queue_is_read_complete_and_once(files):
    """Several threads write while others read as fast as they can."""
    count, read_ids = 400, []

    def write(name):
        with open_channel(files) as channel:
            for number in range(count // 2):
                channel._put("gpu", {"id": [name, number], "body": "x" * 2_000})

    def read_messages(_name):
        with open_channel(files) as channel:
            while len(read_ids) < count:
                with suppress(Empty):
                    read_ids.append(channel._get("gpu")["id"])

    with ThreadPoolExecutor(5) as pool:
        jobs = [pool.submit(write, name) for name in "ab"] + [pool.submit(read_messages, n) for n in range(3)]
        for job in jobs:
            job.result(60)
    assert sorted(read_ids) == [[name, number] for name in "ab" for number in range(count // 2)]


@pytest.mark.usefixtures("patient")
def test_a_torn_or_unfinished_message_is_skipped(files):
    """A killed writer or a power failure leaves such a message."""
    folder = queue_folder(files)
    (folder / "1_torn.gpu.msg").touch()
    (folder / "2_half.gpu.msg").write_bytes(b'{"body": "\xff')
    (folder / "3_unfinished.tmp").write_text('{"bo')
    assert ring(files)
    assert take_doorbells(files) == [TASK_NAME]
    assert [file.name for file in folder.iterdir()] == ["3_unfinished.tmp"]
    prepare_broker(choose_broker(files), files)
    assert not list(folder.iterdir())
