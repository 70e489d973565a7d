"""The sockets on which the service listens."""

import socket

from backend.base.settings import Settings

STALLED_SECONDS = 30
"""Seconds after which the kernel disconnects a client that does not receive sent data (Linux)."""


def listen(settings: Settings) -> list[socket.socket]:
    """Return bound sockets, one for each address of the host name; raise OSError if that fails."""
    infos = socket.getaddrinfo(
        settings.host.strip("[]"), settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # The protocol is explicit, because asyncio otherwise leaves Nagle's algorithm on, at 40 ms per response.
    return [_bind(family, address) for family, _, _, _, address in dict.fromkeys(infos)]


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_SECONDS * 1000)
    listener.bind(address)
    return listener
