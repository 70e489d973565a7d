"""Tests that a webhook's deadline covers name resolution, all addresses together and the handshake."""

import socket
import threading
import time
from types import SimpleNamespace

import pytest

from backend.service.webhook import post as post_module
from backend.service.webhook.addresses import Target, Unreachable, resolve
from backend.service.webhook.post import post, try_connection

DEADLINE_SECONDS = 0.5


def test_a_hanging_name_resolution_is_abandoned(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    with pytest.raises(Unreachable, match=r"the webhook's host hooks.example is not found within 0\.5 s"):
        resolve("https://hooks.example/", private=False, seconds=DEADLINE_SECONDS)
    release.set()


def test_addresses_that_do_not_answer_share_the_deadline(monkeypatch):
    now, tried_timeouts, create_connection = [0.0], [], socket.create_connection

    def connect(address, timeout, *arguments, **options):
        if not address[0].startswith("192.0.2."):
            return create_connection(address, timeout, *arguments, **options)
        tried_timeouts.append(timeout)
        now[0] += min(timeout, 40)
        raise TimeoutError

    monkeypatch.setattr(post_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(socket, "create_connection", connect)
    target = Target(False, "hooks.example", 80, "/", tuple(f"192.0.2.{number}" for number in range(20)))
    with pytest.raises(Unreachable, match=r"hooks.example did not answer in time"):
        post(target, b"{}", {}, seconds=60)
    assert tried_timeouts == [60, 20]


@pytest.mark.parametrize(
    "send", [lambda target, **options: post(target, b"{}", {}, **options), try_connection]
)
def test_a_handshake_of_one_byte_at_a_time_is_abandoned(send):
    listener = socket.create_server(("127.0.0.1", 0))

    def drip():
        connection, _ = listener.accept()
        with connection:
            for byte in b"\x16\x03\x03\x40\x00" + bytes(200):
                time.sleep(0.05)
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    return

    threading.Thread(target=drip, daemon=True).start()
    target = resolve(f"https://127.0.0.1:{listener.getsockname()[1]}/", private=True)
    with pytest.raises(Unreachable, match=r"127.0.0.1 did not answer in time"):
        send(target, seconds=DEADLINE_SECONDS)
    listener.close()
