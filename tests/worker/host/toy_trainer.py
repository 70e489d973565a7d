"""A trainer without torch for tests of the supervisor, with a real process and real SQL but no learning.

The first argument selects its behaviour once it has a run."""

import faulthandler
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

from backend.base.errors import Fenced
from backend.base.settings import Settings
from backend.config.rewards import PluginReward
from backend.config.run import RunConfig
from backend.runs import lifecycle
from backend.storage.engine import open_engine, open_sessions
from worker.outcome import EXIT_FENCED
from worker.prompt import Prompt
from worker.recording.recorder import Recorder
from worker.recording.records import StepRecord
from worker.rewards.plugins import PluginTerm
from worker.train import _await_assignment, _say
from worker.training.lifeline import exit_at_end


def count_to(recorder, last, stopping, seconds):
    for step in range(1, last + 1):
        recorder.record_step(StepRecord(step, {"reward/mean": step / last}))
        time.sleep(seconds)
        if stopping.is_set():
            return "queued"
        if recorder.requested_action == "stop":
            return "stopped"
    return "finished"


def hang_if(condition, recorder):
    if condition:
        recorder.flush()
        threading.Event().wait()


def ask_a_loud_reward(megabytes):
    term = PluginReward(entry_point="loud", params={"megabytes": megabytes}, timeout_seconds=3600)
    with closing(PluginTerm(term)) as plugin:
        assert plugin.rewards([(Prompt("p", "1 + 1", "2", "sums"), "2")]) == [1.0]


def main(behaviour):
    gc.freeze()  # importing at exit would take a third of the test's time
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    _say({"ready": True})
    assignment = _await_assignment()
    threading.Thread(target=exit_at_end, daemon=True).start()
    settings = Settings()
    sessions = open_sessions(open_engine(assignment.database_url))
    if behaviour == "raise":
        print("about to fail")
        raise ValueError("the reward of 'nan' is not a number")
    if behaviour == "report":
        _say({"failed": {"reason": "OutOfMemoryError: CUDA out of memory", "kind": "memory"}})
        sys.exit(1)
    if behaviour == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "vanish":
        sys.exit(0)
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "child":
        child = subprocess.Popen(["sleep", "1000"])
        print(f"child {child.pid}")
    if behaviour == "chatty":
        print("\x1b[31mred\x1b[0m\r50%\r100%")
        print("to stderr", file=sys.stderr)
    if behaviour == "loud":
        ask_a_loud_reward(int(sys.argv[2]))
    print(json.dumps({"threads": os.environ["OMP_NUM_THREADS"], "token": os.environ.get("GRPOLAB_TOKEN")}))
    steps = {"long": 1000, "deaf": 1000, "endless": 10**6}.get(behaviour, 3)
    recorder = Recorder(
        sessions,
        assignment.run_id,
        assignment.attempt,
        config=RunConfig(),
        lease_seconds=settings.lease_seconds,
    )
    try:
        with recorder:
            recorder.begin(-1)
            status = count_to(recorder, steps, stopping, 0.02)
            hang_if(behaviour == "hang", recorder)
        owner = (assignment.run_id, assignment.attempt)
        with sessions.begin() as session:
            if status == "queued":
                lifecycle.release_run(session, *owner, "asked to stop")
            else:
                lifecycle.finish_run(session, *owner, status)
        if behaviour == "tidy":
            time.sleep(2)
            print("tidied up")
    except Fenced:
        sys.exit(EXIT_FENCED)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if sys.argv[1] == "unready":
        sys.exit(1)
    main(sys.argv[1])
