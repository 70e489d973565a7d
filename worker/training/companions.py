"""Run the processes of a trainer's other ranks and tie their lifetime to the trainer's.

They are child processes in the trainer's session, so they end with the trainer. If one of them dies, the
trainer ends in the same way, with the same signal or the reported reason.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, NoReturn, cast

import torch

from backend.config.run import RunConfig
from worker.outcome import EXIT_FAILED, EXIT_ORPHANED
from worker.policy.ranks import ALONE, Meeting, Ranks, UnlikeRanks, is_lost_peer, join, leave
from worker.training.meeting import meeting_directory
from worker.training.node_group import NodeGroup

logger = logging.getLogger(__name__)

LINGER_SECONDS = 5.0
"""Seconds that a trainer waits for the reason after it has lost a rank."""

REPORT_GRACE_SECONDS = 2.0
"""Seconds that the trainer gets to report its own failure after a rank has failed."""

FOLLOWER_COMMAND = (sys.executable, "-m", "worker.training.follower")


class Companions:
    """The processes of the additional ranks of a run on this node."""

    def __init__(self, argv: tuple[str, ...] = FOLLOWER_COMMAND) -> None:
        self._argv = argv
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watches: list[threading.Thread] = []
        self._is_over = threading.Event()

    def start(
        self,
        config: RunConfig,
        meeting: Meeting,
        *,
        first: int = 0,
        device: str,
        threads: int,
        gpus: Sequence[str],
    ) -> None:
        """Start a process for each rank of this node after `first`; `gpus` lists the GPUs of these ranks."""
        for number in range(1, config.resources.devices):
            rank = first + number
            env = {**os.environ, **({"CUDA_VISIBLE_DEVICES": gpus[number]} if gpus else {})}
            process = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
            )  # no separate session: it ends with the trainer
            self._processes.append(process)
            logger.info("rank %d is process %d", rank, process.pid)
            order = {
                "meeting": meeting,
                "rank": rank,
                "size": config.resources.ranks,
                "device": device,
                "threads": threads,
                "config": config.model_dump(mode="json"),
            }
            with contextlib.suppress(OSError):  # the process is dead, and the watch thread reports it
                stdin = cast("IO[bytes]", process.stdin)
                stdin.write(json.dumps(order).encode() + b"\n")
                stdin.flush()
            watch = threading.Thread(target=self._watch, args=(rank, process), daemon=True)
            watch.start()
            self._watches.append(watch)

    def _watch(self, rank: int, process: "subprocess.Popen[bytes]") -> None:
        """Forward a rank's output, and end the trainer if the rank ends early."""
        failure = ""
        with cast("IO[bytes]", process.stdout) as output:
            for line in output:
                text = line.decode(errors="backslashreplace").rstrip("\n")
                if text.startswith('{"failed":'):
                    failure = text
                else:
                    logger.info("rank %d: %s", rank, text)
        code = process.wait()
        if code == 0:  # rank 0 has released it
            return
        # The trainer may be about to fail on its own, and a trainer that lost its ranks is not the cause.
        self._is_over.wait(
            {EXIT_FAILED: REPORT_GRACE_SECONDS, EXIT_ORPHANED: 2 * LINGER_SECONDS}.get(code, 0)
        )
        if not self._is_over.is_set():
            _end_process(rank, code, failure)

    def close(self) -> None:
        """End all processes of the ranks."""
        self._is_over.set()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            with contextlib.suppress(OSError):
                cast("IO[bytes]", process.stdin).close()
        for watch in self._watches:
            watch.join()


def _end_process(rank: int, code: int, failure: str) -> NoReturn:
    if code < 0:
        sys.stderr.write(f"rank {rank} was ended by {signal.Signals(-code).name}: the attempt ends with it\n")
        sys.stderr.flush()
        os.kill(os.getpid(), -code if -code != signal.SIGTERM else signal.SIGKILL)
    failed = (
        json.loads(failure)["failed"]
        if failure
        else {"reason": f"it ended with code {code}", "kind": "exception"}
    )
    failed["reason"] = f"rank {rank}: {failed['reason']}"
    sys.stdout.write(json.dumps({"failed": failed}) + "\n")
    sys.stdout.flush()
    os._exit(EXIT_FAILED)


@contextlib.contextmanager
def joined_ranks(
    config: RunConfig,
    *,
    device: str,
    threads: int,
    gpus: Sequence[str] = (),
    argv: tuple[str, ...] = FOLLOWER_COMMAND,
    group: NodeGroup | None = None,
) -> Iterator[Ranks]:
    """Start the ranks of a run, with this process as the first, and end them when the block ends.

    `group` is the group of nodes, if the ranks are on several.
    """
    if config.resources.ranks == 1:
        yield ALONE
        return
    threads = threads_per_rank(config, threads, gpus)
    companions = Companions(argv)
    with meeting_directory() as directory:
        try:
            meeting = group.call() if group else Meeting(file=str(directory / "meeting"))
            companions.start(config, meeting, device=device, threads=threads, gpus=gpus)
            listener = group.listener if group else None
            ranks = join(meeting, 0, config.resources.ranks, device=device, listener=listener)
            yield ranks
            if group:
                ranks.order(("leave",))
        except RuntimeError as error:
            if is_lost_peer(error):  # The thread that finds out why the rank died ends this process.
                group.linger() if group else time.sleep(LINGER_SECONDS)
            raise
        finally:
            if group:
                group.close()
            companions.close()
            leave()


def threads_per_rank(config: RunConfig, threads: int, gpus: Sequence[str]) -> int:
    """Return the CPU threads per rank on this node and set them in this process.

    Raises UnlikeRanks if the worker holds fewer GPUs than the run needs.
    """
    if gpus and len(gpus) < config.resources.devices:
        raise UnlikeRanks(f"the worker holds {len(gpus)} GPUs, the run needs {config.resources.devices}")
    threads = max(1, threads // config.resources.devices) if not gpus else threads
    torch.set_num_threads(threads)
    return threads
