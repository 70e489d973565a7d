"""A broker for tests of the queue and of workers."""

import subprocess

import pytest

from backend.runs.queue.broker import choose_broker, is_ready, prepare_broker
from tests.waiting import wait_for


def start_broker(settings):
    broker = choose_broker(settings)
    prepare_broker(broker, settings)
    process = subprocess.Popen(broker.command, stdout=subprocess.DEVNULL)
    wait_for(lambda: broker.socket and is_ready(broker.socket))
    return process


@pytest.fixture
def broker(settings):
    process = start_broker(settings)
    yield process
    process.kill()
    process.wait()
