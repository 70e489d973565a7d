"""Command-line arguments of the command `pilots`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `pilots`: common ones, and those for a specific cluster."""
    parser.add_argument("cluster", choices=("slurm", "kubernetes", "skypilot"))
    parser.add_argument("--most", type=int, default=8, metavar="N", help="pilots at a time (8)")
    parser.add_argument("--every", type=float, default=15, metavar="SECONDS", help="time between looks (15)")
    parser.add_argument("--once", action="store_true", help="look once")
    parser.add_argument("--dry-run", action="store_true", help="print the job and start nothing")
    pilot = parser.add_argument_group("pilots")
    pilot.add_argument("--runs", type=int, default=1, metavar="N", help="runs of each pilot (1)")
    pilot.add_argument("--idle", type=int, default=60, metavar="SECONDS", help="end without work after (60)")
    pilot.add_argument("--devices", type=int, default=1, metavar="N", help="GPUs, or CPU slots, of each (1)")
    pilot.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of each, for one run (1)")
    slurm = parser.add_argument_group("slurm")
    slurm.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="TEXT",
        help="for sbatch, such as --option=--gres=gpu:1",
    )
    kubernetes = parser.add_argument_group("kubernetes")
    kubernetes.add_argument("--image", default="grpolab-worker", help="image of the worker")
    kubernetes.add_argument("--gpus", type=int, default=1, help="GPUs of each pod (1)")
    kubernetes.add_argument("--queue", default="", help="local queue of Kueue")
    kubernetes.add_argument("--secret", default="grpolab", help="Secret with the service's settings")
    kubernetes.add_argument(
        "--volume",
        default="grpolab-state",
        help="claim of the shared volume for the state; empty: none",
    )
    skypilot = parser.add_argument_group("skypilot")
    skypilot.add_argument("--accelerators", default="", metavar="H100:1", help="as SkyPilot names them")
