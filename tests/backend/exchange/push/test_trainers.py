"""Tests of the callbacks of other trainers with several training processes."""

import subprocess
import sys

import pytest

from backend.exchange.push.api import CLIENT

PROCESS_SCRIPT = """
import sys, types
sys.path.insert(0, {client!r})
import grpolab, torch
rank = int(sys.argv[1])
torch.distributed.init_process_group("gloo", init_method="file://{meeting}", rank=rank, world_size=2)
class Run:
    def should_stop(self):
        return step == 3
callback = grpolab.GRPOLabCallback(completions=0)
callback.run = Run() if rank == 0 else None
args = types.SimpleNamespace(world_size=2, device="cpu")
for step in range(1, 6):
    control = types.SimpleNamespace(should_training_stop=False)
    callback.on_step_end(args, types.SimpleNamespace(global_step=step), control)
    if control.should_training_stop:
        break
print(step)
"""


@pytest.mark.nightly
def test_all_processes_stop_at_the_step_at_which_the_first_one_was_stopped(tmp_path):
    code = PROCESS_SCRIPT.format(client=str(CLIENT.parent), meeting=tmp_path / "meeting")
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["3\n", "3\n"]
