"""Stand in for a trainer that `warm.py` forks: pass its streams on, and exit when the trainer exits.

python -I -S stub.py SOCKET [arguments of `failpoints.arm`]"""

import json
import os
import signal
import socket
import sys

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
order = {"pid": os.getpid(), "env": dict(os.environ), "arguments": sys.argv[2:]}
socket.send_fds(server, [json.dumps(order).encode()], [0, 1, 2])
answers = server.makefile()
trainer = int(answers.readline())
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, _frame: os.kill(trainer, number))
for stream in (0, 1, 2):
    os.close(stream)
code = int(answers.readline() or 1)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
