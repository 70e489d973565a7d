"""Ports for programs whose port must be known before they start."""

import atexit
import random
import socket

PORT_RANGE = range(20_000, 32_000)
"""Ports below those of outgoing connections, which start at 32,768 on Linux and at 49,152 elsewhere."""

_claims: list[socket.socket] = []


@atexit.register
def _release_claims() -> None:
    for claim in _claims:
        claim.close()


def free_port() -> int:
    """Return a free port, which no other test process gets before this process ends."""
    for port in random.sample(PORT_RANGE, len(PORT_RANGE)):
        # UDP ports have the same numbers but are independent of TCP ports.
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            with socket.socket() as test_socket:
                claim.bind(("127.0.0.1", port))
                test_socket.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return port
    raise RuntimeError(f"every port of {PORT_RANGE} is taken")
