"""Programs that attack their grader and its machine.

`{secret}` stands for a file, and `{port}` for the port of a service on this machine. No program computes
what its test expects, so that any pass is undeserved."""

from collections.abc import Iterator
from typing import NamedTuple

ATTACKS = {
    "nothing": "pass",
    "fork bomb": "import os\nwhile True: os.fork()",
    "clone by ctypes": "import ctypes\nfor _ in range(9): ctypes.CDLL(None).fork()",
    "start a program": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'echo 1 > /tmp/escaped'])",
    "os.system": "import os\nos.system('touch /tmp/escaped')",
    "exec": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "multiprocessing": "import multiprocessing as m\nm.Pool(4).map(abs, [1])",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()",
    "memory at once": "x = bytearray(10**11)",
    "memory bit by bit": "x = []\nwhile True: x.append('y' * 10**6)",
    "output": "while True: print('x' * 10**6)",
    "output by descriptor": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "_exit": "import os\nos._exit(0)",
    "exit": "import sys\nsys.exit(0)",
    "quit in a thread": "import threading, os\nthreading.Thread(target=lambda: os._exit(0)).start()",
    "abort": "import os\nos.abort()",
    "segfault": "import ctypes\nctypes.string_at(0)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\nd = lambda: d()\nd()",
    "deep source": "x = " + "(" * 5000 + ")" * 5000,
    "replace print": "import builtins\nbuiltins.print = lambda *a: 1\nbuiltins.AssertionError = Warning",
    "replace stdout": "import sys, io\nsys.stdout = sys.__stdout__ = io.StringIO()",
    "own arguments": "import sys\nprint(sys.argv, sys.orig_argv)",
    "variables": "import os\nprint(os.environ)",
    "files": "import glob\nfor p in glob.glob('/**/*test*', recursive=True)[:200]: print(p)",
    "the secret": "print(open({secret!r}).read())",
    "a link to the secret": (
        "import os\nos.symlink({secret!r}, '/scratch/l')\nprint(open('/scratch/l').read())"
    ),
    "memory of others": "for p in (1, 2, 'self'): print(open(f'/proc/{{p}}/mem', 'rb').read(1))",
    "commands of others": "for p in range(1, 99): print(open(f'/proc/{{p}}/cmdline').read())",
    "descriptors": (
        "import os\nfor fd in range(256):\n  try: print(fd, os.read(fd, 99))\n  except OSError: pass"
    ),
    "forge a reply": (
        "import os\nfor fd in range(256):\n"
        '  try: os.write(fd, b\'{{"value": {{"passed": true}}}}\\n\')\n  except OSError: pass'
    ),
    "forge a verdict": (
        "import os\nfor fd in range(256):\n"
        '  try: os.write(fd, b\'{{"at": 0, "value": {{"passed": true}}}}\\n\')\n  except OSError: pass'
    ),
    "close everything": "import os\nos.closerange(0, 256)",
    "swap descriptors": "import os\nos.dup2(0, 1)",
    "frames": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n  print(frame.f_locals)\n  frame = frame.f_back"
    ),
    "everything in memory": (
        "import gc\nfor o in gc.get_objects():\n"
        "  if isinstance(o, dict) and ('output' in o or 'test' in o or 'expected' in o): print(o)"
    ),
    "raw memory": (
        "import ctypes, gc\nfor o in gc.get_objects()[:20000:50]: print(ctypes.string_at(id(o), 64))"
    ),
    "patch the comparison": (
        "import worker.rewards.code_tests as c\nc.is_same_output = c.is_same_value = lambda *a: True"
    ),
    "patch the codec": "import worker.rewards.programs as p\np.encode_value = lambda v: {{'anything': v}}",
    "patch the fork": (
        "import backend.base.sandbox.forks as f\nf.answer = lambda *a: b'{{\"value\": {{}}}}\\n'"
    ),
    "patch json": 'import json\njson.dumps = lambda *a, **k: \'{{"value": {{"passed": true}}}}\'',
    "patch the exit": "import os\nos._exit = lambda code: None",
    "kill the parent": "import os\nos.kill(os.getppid(), 9)",
    "kill everything": "import os\nos.kill(-1, 9)",
    "kill the group": "import os\nos.killpg(0, 9)",
    "stop the parent": "import os\nos.kill(os.getppid(), 19)",
    "ignore signals": (
        "import signal\nfor s in range(1, 32):\n"
        "  try: signal.signal(s, signal.SIG_IGN)\n  except OSError: pass"
    ),
    "trace the parent": "import ctypes, os\nctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)",
    "read the parent": (
        "import ctypes, os\nb = ctypes.create_string_buffer(64)\n"
        "print(ctypes.CDLL(None).process_vm_readv(os.getppid(), b, 1, b, 1, 0))"
    ),
    "new namespaces": "import ctypes\nctypes.CDLL(None).unshare(0x10000000)",
    "mount": "import ctypes\nctypes.CDLL(None).mount(b'none', b'/scratch', b'tmpfs', 0, 0)",
    "more limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "new session": "import os\nos.setsid()",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)",
    "datagrams": (
        "import socket\nu = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "u.sendto(b'x', ('127.0.0.1', 53))"
    ),
    "names": "import socket\nprint(socket.gethostbyname('example.com'))",
    "local sockets": "import socket\nsocket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
    "write a file": "open('/tmp/escaped', 'w').write('x')",
    "write to scratch": "open('/scratch/x', 'w').write('x')",
    "write to code": "import worker.rewards.code_tests as c\nopen(c.__file__, 'a').write('#')",
    "a file in memory": "import os\nos.memfd_create('x')",
    "a directory": "import os\nos.mkdir('/scratch/d')",
    "remove code": "import os, worker.rewards.code_tests as c\nos.unlink(c.__file__)",
    "sleep": "import time\ntime.sleep(60)",
    "compute": "while True: pass",
    "compute in C": "9 ** 9 ** 9",
    "threads that compute": (
        "import threading\ndef f():\n  while True: pass\n"
        "for _ in range(8): threading.Thread(target=f).start()"
    ),
}

EQUAL_TO_ALL = """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    __hash__ = int.__hash__
"""

PROGRAM_SHAPES = {
    "plain": "{attack}",
    "guarded": "try:\n{indented}\nexcept BaseException:\n  pass",
    "in a thread": (
        "import threading\ndef work():\n{indented}\nt = threading.Thread(target=work)\nt.start()\nt.join(9)"
    ),
    "in a destructor": "class Late:\n  def __del__(self):\n{twice}\nlate = Late()\ndel late",
    "at exit": "import atexit\ndef work():\n{indented}\natexit.register(work)",
    "in a tracer": "import sys\ndef work(*a):\n{indented}\nsys.settrace(work)\n(lambda: 0)()",
}


class Hostile(NamedTuple):
    """A hostile program, as the body of a script and as the body of a function `f`."""

    name: str
    script: str
    function: str


def hostile_programs(*, secret: str, port: int) -> Iterator[Hostile]:
    """Yield every attack in every shape."""
    for shape, frame in PROGRAM_SHAPES.items():
        for name, text in ATTACKS.items():
            attack = text.format(secret=secret, port=port)
            body = frame.format(
                attack=attack, indented=indent_text(attack), twice=indent_text(indent_text(attack))
            )
            function = f"{EQUAL_TO_ALL}\ndef f(x):\n{indent_text(body)}\n  return Any()\n"
            yield Hostile(f"{name}, {shape}", f"{body}\nprint(True)", function)


def indent_text(text: str) -> str:
    """Return a text as an indented block of Python."""
    return "\n".join("  " + line for line in text.splitlines())
