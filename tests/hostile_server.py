"""A server on the loopback interface that sends arbitrary bytes, for tests of clients."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HEAD_END = b"\r\n\r\n"


class HostileServer:
    """Answers every request with the blocks that `answer` yields for its head."""

    def __init__(self, answer: Callable[[str], Iterator[bytes]]) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.heads: list[str] = []
        self.sent = 0
        """Number of bytes in all answers together."""
        self.cut = threading.Event()
        """Set when a client disconnects before the end of its answer."""

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while head := self._head(connection):
                self.heads.append(head)
                try:
                    for block in self._answer(head):
                        connection.sendall(block)
                        self.sent += len(block)
                except OSError:
                    self.cut.set()
                    return

    @staticmethod
    def _head(connection: socket.socket) -> str:
        head = b""
        while HEAD_END not in head:
            try:
                block = connection.recv(65536)
            except OSError:
                return ""
            if not block:
                return ""
            head += block
        return head.decode(errors="replace")

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@contextmanager
def hostile_server(answer: Callable[[str], Iterator[bytes]]) -> Iterator[HostileServer]:
    """Yield a server that runs during the body."""
    server = HostileServer(answer)
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield server
    finally:
        server.close()


def endless(head: bytes, block: bytes) -> Iterator[bytes]:
    """Yield an answer with an endless body."""
    yield head
    while True:
        yield block
