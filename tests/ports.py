"""Ports for programs that have to be told theirs before they start."""

import atexit
import random
import socket

PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to outgoing connections: from 32,768 on Linux, from 49,152 elsewhere."""

_claims: list[socket.socket] = []


@atexit.register
def _release_claims() -> None:
    for claim in _claims:
        claim.close()


def free_port() -> int:
    """Return a port of this machine that nobody has, and that no other test process is given until this one
    ends.
    """
    for port in random.sample(PORTS, len(PORTS)):
        # Ports of UDP have the same numbers and nothing else to do with those of TCP.
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            with socket.socket() as probe:
                claim.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return port
    raise RuntimeError(f"every port of {PORTS} is taken")
