"""Two hundred files that must be refused, each with the line and the reason."""

import gzip
import io
import json
import tarfile
import zipfile
from typing import NamedTuple

import zstandard

GOOD = '{"prompt": "1+1=?", "answer": "2"}'
OTHER = '{"prompt": "1+2=?", "answer": "3"}'


class Bad(NamedTuple):
    """A file, and what must be said about it; line 0 is the file as a whole."""

    defect: str
    content: bytes
    line: int
    reason: str
    name: str = "data.jsonl"


def _lines(*lines: str | bytes) -> bytes:
    return b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)


def _with(**fields: object) -> str:
    """A good row but for these fields."""
    return json.dumps({"prompt": "x", "answer": "1"} | fields)


def _raw(field: str, value: str) -> str:
    """A row with one more field whose JSON is written out."""
    return f'{{"prompt": "x", "answer": "1", "{field}": {value}}}'


BAD_LINES: dict[str, list[str | bytes]] = {
    "is not JSON at column": [
        "{", "}", "{]", "nonsense", "{'prompt': 'x'}", '{"prompt": }', '{"prompt" "x"}', GOOD + ",",
        GOOD + GOOD, '{"prompt": "x",}', "<html></html>", "prompt,answer", "---", "\\x00", '"open',
        '{"prompt": "a\tb", "answer": "1"}', '{"prompt": "a\x01b", "answer": "1"}', "// no", "{} {}", "0x10",
        "01", '{"a": tru}',
    ],
    "expected a JSON object": [
        "[]", "[1, 2]", '"text"', "1", "1.5", "-0", "true", "false", "null", "[{}]", f"[{GOOD}]",
    ],
    "is not UTF-8 at byte": [
        b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf", b"\xe2\x82", b"\x80",
        b'{"prompt": "caf\xe9", "answer": "1"}', GOOD.encode("utf-16"),
    ],
    "field 'prompt': expected text": [
        _with(prompt=value)
        for value in (None, 1, 1.5, True, [], ["x"], {}, {"x": 1}, "", " ", "\n\t", "\u3000")
    ],
    "field 'answer': expected text": [
        _with(answer=value) for value in (None, True, False, [], [1], {}, {"x": 1}, "", " ", "\t", "\u2003")
    ],
    "is missing; the fields are": [
        "{}", '{"prompt": "x"}', '{"answer": "x"}', '{"question": "x", "answer": "1"}', '{"__proto__": 1}',
        '{"Prompt": "x", "answer": "1"}', '{"prompt ": "x", "answer": "1"}', '{"messages": []}',
    ],
    "occurs twice": [
        '{"prompt": "x", "prompt": "y", "answer": "1"}', '{"prompt": "x", "answer": "1", "answer": "1"}',
        '{"": 1, "": 2, "prompt": "x", "answer": "1"}', _raw("a", '{"b": 1, "b": 2}'),
        '{"prompt": "x", "answer": "1", "\\u0061": 1, "a": 2}',
    ],
    "is not finite": [
        *(f'{{"prompt": "x", "answer": {value}}}' for value in ("NaN", "-Infinity", "1e999", "-1e309")),
        *(_raw("a", f'[{{"b": {value}}}]') for value in ("NaN", "Infinity", "-Infinity", "1e999", "-1e400")),
    ],
    "field 'split': expected one of": [
        _with(split=value) for value in ("Train", "dev", "", 1, True, [], {}, "train ", "TEST", 0)
    ],
    "field 'id': expected text": [_with(id=value) for value in (None, 1.5, [], {}, [1])],
    "field 'domain'": [
        _with(domain=value)
        for value in (None, "", "Math", "a b", "a/b", "../x", "_a", "é", "a\n", "a" * 33, 1.5, [], True)
    ],
    "lone surrogate": [
        '{"prompt": "\\ud800", "answer": "1"}', '{"prompt": "x", "answer": "\\udfff"}',
        '{"prompt": "x", "answer": "1", "\\uD83D": 1}', _raw("a", '["\\udc00\\ud800"]'),
    ],
    "is nested too deeply": [
        "[" * 40_000, '{"a":' * 40_000, _raw("a", "[" * 64 + "]" * 64), _raw("a", "[" * 900 + "]" * 900),
        _raw("a", '{"b":[' * 32 + "]}" * 32),
    ],
    "is longer than 256,000 bytes": [
        "x" * 256_001, _with(prompt="x" * 300_000), " " * 256_000 + GOOD, "[" * 10_000_000,
    ],
    "a number of 5,000 digits: expected at most 4,300": [
        '{"prompt": "x", "answer": ' + "9" * 5000 + "}", _raw("a", "9" * 5000),
        _raw("a", '[{"b": ' + "9" * 5000 + "}]"),
    ],
}  # fmt: skip
"""By the reason that is given."""


def _archive_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        content = _lines(GOOD, OTHER)
        member = tarfile.TarInfo("../../etc/data.jsonl")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _archive_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../data.jsonl", _lines(GOOD, OTHER))
    return out.getvalue()


def _zstd_bomb() -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(b" " * 300_000_000)


PACKED = _lines(GOOD, OTHER)
GZ, ZST = gzip.compress(PACKED), zstandard.compress(PACKED)
REPEATED = (GOOD + "\n").encode() * 100_000

BAD_FILES = [
    Bad("empty", b"", 0, "has no row"),
    Bad("only blank lines", b"\n\r\n  \n", 0, "has no row"),
    Bad("one question", _lines(GOOD), 0, "has only one question"),
    Bad("one question twice", _lines(GOOD, GOOD), 0, "has only one question"),
    Bad("domains", _lines(*(_with(prompt=str(n), domain=f"d{n}") for n in range(33))), 33, "32 domains"),
    Bad("gzip cut", GZ[:-9], 0, "ends in the middle", "a.jsonl.gz"),
    Bad("gzip of nothing", b"", 0, "has no row", "a.jsonl.gz"),
    Bad("gzip that is text", PACKED, 0, "is not what .jsonl.gz stands for", "a.jsonl.gz"),
    Bad("gzip with a wrong checksum", GZ[:-8] + bytes(8), 0, "is not what", "a.jsonl.gz"),
    Bad("gzip and then dirt", GZ + b"dirt", 0, "is not what", "a.jsonl.gz"),
    Bad("gzip damaged", GZ[:20] + b"\xff\xff\xff" + GZ[23:], 0, "", "a.jsonl.gz"),
    Bad("zstd cut", ZST[:-5], 0, "ends in the middle", "a.jsonl.zst"),
    Bad("zstd of nothing", b"", 0, "ends in the middle", "a.jsonl.zst"),
    Bad("zstd that is text", PACKED, 0, "is not what .jsonl.zst stands for", "a.jsonl.zst"),
    Bad("zstd and then dirt", ZST + b"dirt!", 0, "is not what", "a.jsonl.zst"),
    Bad("zstd that is gzip", GZ, 0, "is not what", "a.jsonl.zst"),
    Bad("plain that is gzip", GZ, 1, "is not UTF-8", "a.jsonl"),
    Bad("plain that is zstd", ZST, 1, "is not UTF-8", "a.jsonl"),
    Bad("tar in gzip", gzip.compress(_archive_tar()), 1, "is not JSON", "a.jsonl.gz"),
    Bad("zip", _archive_zip(), 1, "is not", "a.jsonl"),
    Bad("zip in zstd", zstandard.compress(_archive_zip()), 1, "is not", "a.jsonl.zst"),
    Bad("gzip in gzip", gzip.compress(GZ), 1, "is not UTF-8", "a.jsonl.gz"),
    Bad("a bomb of blanks in gzip", gzip.compress(b" " * 50_000_000), 0, "times its size", "a.jsonl.gz"),
    Bad("a bomb of good rows in gzip", gzip.compress(REPEATED), 0, "times its size", "a.jsonl.gz"),
    Bad("a bomb in zstd", _zstd_bomb(), 0, "times its size", "a.jsonl.zst"),
    Bad("a bomb of rows in zstd", zstandard.compress(REPEATED), 0, "times its size", "a.jsonl.zst"),
]  # fmt: skip

_EACH = [(line, reason) for reason, lines in BAD_LINES.items() for line in lines]

BAD = [
    *(Bad(reason, _lines(GOOD, "", OTHER, line, GOOD), 4, reason) for line, reason in _EACH),
    *(Bad(f"{reason}, first", _lines(line, GOOD, OTHER), 1, reason) for line, reason in _EACH[::4]),
    *(
        Bad(f"{reason}, packed", gzip.compress(_lines(GOOD, OTHER, line)), 3, reason, "a.jsonl.gz")
        for line, reason in _EACH[1::5]
    ),
    *BAD_FILES,
]
