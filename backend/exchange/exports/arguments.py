"""Command-line arguments of the export commands."""

import argparse
from collections.abc import Mapping


def add_arguments(parsers: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add the arguments to the parsers of the export commands."""
    export, archive, push, serve = (parsers[name] for name in ("export", "archive", "push", "serve-model"))
    for parser in (export, archive):
        parser.add_argument("run", help="name or id of the run")
    export.add_argument("--to", required=True, metavar="DIR", help="directory to create")
    export.add_argument("--step", type=int, help="step of the checkpoint (default: the newest)")
    export.add_argument("--dtype", choices=("bfloat16", "float32"), help="precision (default: the run's)")
    archive.add_argument("--to", required=True, metavar="FILE", help="file to create, e.g. run.tar")
    archive.add_argument("--no-checkpoints", action="store_true", help="leave the checkpoints out")
    push.add_argument("directory", help="directory that `export` created")
    push.add_argument("repository", help="owner/name")
    push.add_argument("--public", action="store_true", help="make the repository public")
    push.add_argument("--existing", action="store_true", help="commit to a repository that is there")
    serve.add_argument("directory", help="directory that `export` created, or a checkpoint without adapter")
    serve.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    serve.add_argument("--host", default="127.0.0.1", help="who reaches it can use it: it asks for no token")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--dry-run", action="store_true", help="print the command line, start nothing")
    parsers["copy-checkpoints"].add_argument(
        "run", nargs="?", default="", help="name or id (default: all runs)"
    )
