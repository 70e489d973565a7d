"""The sockets on which the service listens."""

import socket

from backend.base.settings import Settings

STALLED_SECONDS = 30
"""A client that takes nothing of what was sent to it for this long is cut off by the kernel (Linux)."""


def listen(settings: Settings) -> list[socket.socket]:
    """Bound sockets, one for each address of the host's name; raises OSError."""
    infos = socket.getaddrinfo(
        settings.host.strip("[]"), settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # The protocol is named: without it asyncio leaves Nagle's algorithm on, which costs 40 ms an answer.
    return [_bind(family, address) for family, _, _, _, address in dict.fromkeys(infos)]


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_SECONDS * 1000)
    opened.bind(address)
    return opened
