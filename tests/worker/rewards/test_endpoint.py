"""Tests of reading the responses of judges, reward models and engines."""

import asyncio
import gzip

import httpx2
import pytest

from tests.hostile_server import endless, hostile_server
from worker.rewards.endpoint import ResponseTooLong, read_answer


def read(url, *, max_bytes=1000):
    async def answer():
        async with httpx2.AsyncClient(timeout=None) as client:
            status, _, content = await read_answer(client, "POST", url, content=b"{}", max_bytes=max_bytes)
        return status, content

    return asyncio.run(answer())


@pytest.mark.parametrize("length", [b"Content-Length: 100000000000\r\n", b""], ids=["a length", "no length"])
def test_a_response_is_read_only_up_to_its_limit(length):
    head = b"HTTP/1.1 200 OK\r\n" + length + b"\r\n"
    with hostile_server(lambda _: endless(head, b"x" * 65536)) as server:
        with pytest.raises(ResponseTooLong, match=r"its answer is longer than 1,000 bytes"):
            read(server.url)
        assert server.cut.wait(60)


def test_a_compressed_response_is_not_decompressed():
    bomb = gzip.compress(bytes(10_000_000))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    with hostile_server(lambda _: iter([head, bomb])) as server:
        assert read(server.url, max_bytes=len(bomb)) == (200, bomb)
        assert "accept-encoding: identity" in server.heads[0].lower()
