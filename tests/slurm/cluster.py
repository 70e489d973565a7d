"""A Slurm cluster from Debian's packages on one machine, with private directories for its daemons."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NODE_TEMPLATE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} State=UNKNOWN"

REQUIRED_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")

CONFIG_TEMPLATE = """
ClusterName=box
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={port}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=60
JobRequeue=1
SchedulerParameters=sched_interval=1,batch_sched_delay=1
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def reason_without_cluster() -> str:
    """Return why there can be no cluster here, or an empty text."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    missing_programs = [name for name in REQUIRED_PROGRAMS if shutil.which(name) is None]
    return (
        f"{', '.join(missing_programs)} are missing (apt-get install slurmctld slurmd munge)"
        if missing_programs
        else ""
    )


@contextmanager
def running_cluster(root: Path, *, port: int, node_ports: Sequence[int]) -> Iterator[None]:
    """Run the cluster with a node per port. SLURM_CONF refers to it in this process and its children."""
    (root / "state").mkdir(parents=True)
    root.chmod(0o755)
    key = root / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = platform.node().partition(".")[0]
    config = root / "slurm.conf"
    nodes = {f"box{number}": node_port for number, node_port in enumerate(node_ports)}
    lines = [
        NODE_TEMPLATE.format(name=name, host=host, port=node_port, cpus=os.cpu_count())
        for name, node_port in nodes.items()
    ]
    settings = {"host": host, "root": root, "port": port}
    config.write_text(CONFIG_TEMPLATE.format(**settings, nodes="\n".join(lines), names=",".join(nodes)))
    os.environ["SLURM_CONF"] = str(config)
    commands = (
        [
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={root}/munge.socket"),
            *(f"--{name}-file={root}/munged.{name}" for name in ("pid", "log", "seed")),
        ],
        ["slurmctld", "-D", "-i"],
        *(["slurmd", "-D", "-N", name] for name in nodes),
    )
    daemons = []
    try:
        for command in commands:
            with (root / f"{command[0]}-{command[-1]}.out".replace("/", "_")).open("wb") as output_file:
                daemons.append(subprocess.Popen(command, stdout=output_file, stderr=output_file))
            time.sleep(1)
        _wait_for_nodes(len(nodes))
        yield
    finally:
        subprocess.run(["scancel", "--full", "--user=root"], check=False, timeout=60)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(60)
        del os.environ["SLURM_CONF"]


def _wait_for_nodes(nodes: int, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while True:
        states = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--format=%T"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        ).stdout.split()
        if states == ["idle"] * nodes:
            return
        assert time.monotonic() < deadline, f"the nodes are not ready: {states}"
        time.sleep(0.5)
