"""Tests of JSON bodies: measured before they are parsed, parsed once, and few large ones at a time."""

import asyncio
import gzip
import json
import random

import httpx
import pytest
from starlette.exceptions import HTTPException

from backend.http import bodies
from backend.http.bodies import LargeBodies, json_size, parse_body
from tests.api_client import HOST


def measure_depth(document):
    children = document.values() if isinstance(document, dict) else document
    return 1 + max(map(measure_depth, children), default=0) if isinstance(document, dict | list) else 0


def count_values(document):
    """Count values as `json_size` does: an empty list or object counts as two."""
    children = list(document.values()) if isinstance(document, dict) else document
    if not isinstance(document, dict | list):
        return 1
    return 1 + (sum(map(count_values, children)) if children else 1)


def random_document(rng, depth=0):
    kind = rng.randrange(4 if depth < 6 else 2)
    if kind == 2:
        return [random_document(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind == 3:
        return {f'k"{n}\\,[': random_document(rng, depth + 1) for n in range(rng.randrange(5))}
    return "".join(rng.choices('a",[]{}:\\/\n\u00e9', k=8)) if kind else 7


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_values_and_levels_are_counted_in_the_bytes(block, monkeypatch):
    monkeypatch.setattr(bodies, "BLOCK_BYTES", block)
    rng = random.Random(0)
    for _ in range(100):
        document = random_document(rng)
        measured_size = json_size(json.dumps(document, indent=rng.choice([None, 1])).encode())
        assert measured_size == (count_values(document), measure_depth(document))


@pytest.mark.parametrize(
    ("content", "status", "phrase"),
    [
        (b"[" + b"[]," * 200_000 + b"[]]", 413, "more than 250,000 JSON values"),
        (b"[" + b'{"":0},' * 200_000 + b"0]", 413, "more than 250,000 JSON values"),
        (b"[" * 801 + b"]" * 801, 400, "at most 800 levels"),
        (b'{"a":' * 801 + b"1" + b"}" * 801, 400, "at most 800 levels"),
    ],
)
def test_a_body_of_too_many_values_or_levels_is_refused_before_parsing(content, status, phrase, monkeypatch):
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    for encoding, body in (("", content), ("gzip", gzip.compress(content))):
        with pytest.raises(HTTPException, match=phrase) as error_info:
            parse_body(body, encoding)
        assert error_info.value.status_code == status


def test_the_bytes_of_incoming_bodies_are_bounded_per_role_and_per_writer():
    large_bodies = LargeBodies()
    with large_bodies.count_bytes("writer", "a") as first, large_bodies.count_bytes("writer", "b") as second:
        first(bodies.WRITER_BYTES)
        for _ in range(3):  # the refused bodies are no longer counted
            with (
                large_bodies.count_bytes("writer", "a") as count,
                pytest.raises(HTTPException, match="too many large"),
            ):
                count(100_001)
        with (
            large_bodies.count_bytes("writer", "a") as count_small,
            large_bodies.count_bytes("operator", "") as count_operator,
        ):
            count_small(100_000)
            count_operator(bodies.ROLE_BYTES)
        second(bodies.ROLE_BYTES - bodies.WRITER_BYTES)
        with large_bodies.count_bytes("writer", "c") as count, pytest.raises(HTTPException) as error_info:
            count(100_001)
        assert error_info.value.status_code == 429
    with large_bodies.count_bytes("writer", "c") as count:
        count(100_001)


def test_two_large_bodies_of_a_role_and_one_of_a_writer_are_admitted(monkeypatch):
    monkeypatch.setattr(bodies, "MAX_WAIT_SECONDS", 0.05)

    async def story():
        large_bodies = LargeBodies()
        async with large_bodies.wait_for_turn("writer", "a"):
            with pytest.raises(HTTPException, match="too many large bodies") as error_info:
                async with large_bodies.wait_for_turn("writer", "a"):
                    pass
            assert error_info.value.status_code == 429
            async with large_bodies.wait_for_turn("writer", "b"), large_bodies.wait_for_turn("operator", ""):
                with pytest.raises(HTTPException):
                    async with large_bodies.wait_for_turn("writer", "c"):
                        pass
            async with large_bodies.wait_for_turn(
                "writer", "c"
            ):  # b has ended, and the refused bodies hold nothing
                pass
        async with large_bodies.wait_for_turn("writer", "a"):
            pass

    asyncio.run(story())


def test_a_large_body_waits_until_another_one_is_answered(client, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "MAX_LARGE", 0)
    large_body, small_body = {"base": {"notes": "x" * 100_000}}, {"base": {}}
    assert client.post("/api/v1/validate", json=large_body).status_code == 429
    assert client.post("/api/v1/validate", json=small_body).status_code == 200


def test_a_slow_body_does_not_delay_others(client, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "MAX_LARGE", 1)
    large_body = b'{"base": {}' + b" " * 100_000 + b"}"

    async def story():
        headers = {**client.headers, "Content-Type": "application/json"}
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers) as http:
            has_begun, is_over = asyncio.Event(), asyncio.Event()

            async def send_slowly():
                yield large_body[:-1]
                has_begun.set()
                await is_over.wait()
                yield large_body[-1:]

            uploading = asyncio.create_task(http.post("/api/v1/validate", content=send_slowly()))
            await has_begun.wait()
            fast_answer = await http.post("/api/v1/validate", content=large_body)
            is_over.set()
            return fast_answer.status_code, (await uploading).status_code

    assert asyncio.run(story()) == (200, 200)
