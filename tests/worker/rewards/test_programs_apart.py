"""Tests that programs cannot pass data to the next one by shared memory, queues, keys, files or locks."""

from contextlib import closing

import pytest

from backend.base.sandbox.layers import missing_layers
from backend.config.served_rewards import CodeReward
from worker.prompt import Prompt
from worker.rewards.code import CodeGrader

pytestmark = pytest.mark.skipif(bool(missing_layers()), reason="a layer of the sandbox is missing here")

CODE_REWARD = CodeReward(timeout_seconds=20, credit="share")
FOUND, NOTHING = (
    Prompt("p", "?", "", "file", columns={"tests": [{"input": "", "output": word}] * 2})
    for word in ("found", "nothing")
)
LIBC_SOURCE = (
    "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.shmat.restype = ctypes.c_void_p\n"
)

CHANNEL_SOURCES = {
    "shared memory of System V": LIBC_SOURCE + (
        "known = libc.shmget(4711, 64, 0o600) >= 0\n"
        "libc.shmget(4711, 64, 0o1600)"
    ),
    "queue of System V": LIBC_SOURCE + "known = libc.msgget(4711, 0o600) >= 0\nlibc.msgget(4711, 0o1600)",
    "semaphore of System V": LIBC_SOURCE + (
        "known = libc.semget(4711, 1, 0o600) >= 0\n"
        "libc.semget(4711, 1, 0o1600)"
    ),
    "queue of POSIX": LIBC_SOURCE + (
        "known = libc.mq_open(b'/left', 0) >= 0\n"
        "libc.mq_open(b'/left', 0o102, 0o600, None)"
    ),
    "key of the kernel": LIBC_SOURCE + (
        "known = libc.syscall(249, b'user', b'left', None, -4) >= 0\n"
        "libc.syscall(248, b'user', b'left', b'x', 1, -4)"
    ),
    "module of the warm parent": "import json\nknown = hasattr(json, 'left')\njson.left = True",
    "variable": "import os\nknown = 'LEFT' in os.environ\nos.environ['LEFT'] = '1'",
    "working directory": "import os\nknown = os.getcwd() == '/usr'\nos.chdir('/usr')",
    "priority": "import os\nknown = os.nice(0) == 7\nos.nice(7)",
} | {
    f"file in {directory}": (
        f"import os\nplace = {directory!r}\nknown = os.path.exists(place + '/left')\n"
        "open(place + '/left', 'w').write('x')"
    )
    for directory in ("/dev/shm", "/tmp", "/var/tmp", "/scratch", ".", "/run", "/proc/self/cwd")
}  # fmt: skip

PROGRAM_TEMPLATE = """
known = False
def leave():
    global known
{body}
try:
    leave()
except BaseException:
    pass
print('found' if known else 'nothing')
"""


@pytest.fixture(scope="module")
def grader():
    with closing(CodeGrader(1)) as grader:
        yield grader


@pytest.mark.parametrize("channel", CHANNEL_SOURCES)
def test_a_program_finds_nothing_of_the_previous_one(grader, channel):
    body = "\n".join(f"    {line}" for line in CHANNEL_SOURCES[channel].splitlines())
    program = PROGRAM_TEMPLATE.format(body=body)
    assert grader.scores(CODE_REWARD, [(FOUND, program), (FOUND, program), (NOTHING, program)]) == [
        0.0,
        0.0,
        1.0,
    ]
