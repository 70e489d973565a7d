"""The command line: `python -m backend.cli up|demo|serve|worker|token|link|doctor|backup|restore|import`."""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from backend.errors import GrpoLabError
from backend.redaction import redact
from backend.settings import Settings

if TYPE_CHECKING:
    from backend.auth.permissions import Role


def up(settings: Settings) -> int:
    """start everything; Ctrl-C stops it"""
    from backend.process.launcher import run_tree

    return run_tree(settings, show_demo=False)


def demo(settings: Settings) -> int:
    """start everything and launch a demo experiment once"""
    from backend.process.launcher import run_tree

    return run_tree(settings, show_demo=True)


def serve(settings: Settings) -> int:
    """start the HTTP service alone; migrates the database first"""
    from backend.db.migrate import migrate
    from backend.logs import set_up_logging
    from backend.process.lifeline import follow_launcher
    from backend.process.preflight import (
        check_database,
        check_exposure,
        check_frontend,
        check_port,
        check_state_dir,
    )
    from backend.process.server import run_server

    follow_launcher()
    set_up_logging(settings)
    check_frontend()
    check_exposure(settings)
    check_state_dir(settings)
    check_port(settings)
    check_database(settings)
    migrate(settings)
    return run_server(settings)


def worker(settings: Settings) -> int:
    """start a worker alone; several machines can each run one"""
    from backend.db.migrate import migrate
    from backend.process.preflight import check_database, check_state_dir
    from backend.sandbox.layers import check_sandbox
    from backend.workers.devices import find_slots

    check_sandbox(settings)
    check_state_dir(settings)
    check_database(settings)
    migrate(settings)
    slots = len(find_slots(settings))
    # In place of this process: a signal to it reaches Celery.
    os.execv(  # noqa: S606
        sys.executable,
        [
            *(sys.executable, "-m", "celery", "--app", "worker.host.app", "--quiet", "worker"),
            *("--pool", "threads", "--concurrency", str(slots), "--queues", "gpu"),
            *("--hostname", f"gpu{os.urandom(4).hex()}@{platform.node()}"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ],
    )


def token(settings: Settings, *, viewer: bool = False, writer: str | None = None) -> int:
    """print the operator's token, a viewer's or a writer's, for scripts: `Authorization: Bearer <token>`"""
    from backend.auth.tokens import token_of, writer_token

    print(token_of(settings, _role(viewer=viewer)) if writer is None else writer_token(settings, writer))
    return 0


def link(settings: Settings, *, viewer: bool = False) -> int:
    """print a fresh one-time login link"""
    from backend.auth.tokens import login_link
    from backend.process.instance_lock import running_instance
    from backend.process.terminal import Terminal, show_link

    terminal = Terminal()
    show_link(terminal, settings, login_link(settings, _role(viewer=viewer)), opens_browser=False)
    if running_instance(settings) is None:
        terminal.say(
            f"  `make up` is not running in {settings.state}: "
            "the link works once a service uses this directory."
        )
    return 0


def _role(*, viewer: bool) -> "Role":
    from backend.auth.permissions import Role

    return Role.VIEWER if viewer else Role.OPERATOR


MARKS = {"ok": "ok ", "warn": "?  ", "bad": "NO "}


def doctor(settings: Settings) -> int:
    """check this machine: what it has, what is missing, and what to do"""
    from backend.doctor import examine

    findings = examine(settings)
    for finding in findings:
        print(f"  {MARKS[finding.level]} {finding.what:<10} {finding.text}")
    return 0 if all(finding.is_good for finding in findings) else 1


def backup(settings: Settings, *, to: str) -> int:
    """save database, checkpoints and uploads to a new directory; runs keep training"""
    from backend.backup.save import save_backup
    from backend.process.terminal import Terminal

    os.umask(0o077)
    directory = Path(to).expanduser().absolute()
    with Terminal().step("backup", f"to {directory}") as step:
        saved = save_backup(settings, directory)
        step.result = saved.in_words()
    for name in saved.missing:
        print(f"  not included: checkpoint {name}, whose files are not on this machine")
    return 0


def restore(settings: Settings, *, source: str, overwrite: bool) -> int:
    """replace this installation, which must be stopped, with a backup"""
    from backend.backup.restore import restore_backup
    from backend.process.terminal import Terminal

    os.umask(0o077)
    directory = Path(source).expanduser().absolute()
    with Terminal().step("restore", f"from {directory}") as step:
        manifest = restore_backup(settings, directory, overwrite=overwrite)
        step.result = f"as of {manifest.created_at}; the next start continues the runs that were running"
    print(f"  into {settings.state}, uploads into {settings.datasets_dir.expanduser().resolve()}")
    return 0


def import_file(settings: Settings, *, file: str, dry_run: bool, **names: str | None) -> int:
    """make runs of a log of another trainer: TRL, verl, TensorBoard, W&B, Trackio, CSV, JSONL, Parquet"""
    from backend.db.migrate import migrate
    from backend.imports.command import import_into
    from backend.process.preflight import check_database, check_state_dir

    check_state_dir(settings)
    check_database(settings)
    migrate(settings)
    given = {name: value for name, value in names.items() if value is not None}
    for line in import_into(settings, Path(file).expanduser(), dry_run=dry_run, **given):
        print(line)
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    command.__name__: command for command in (up, demo, serve, worker, token, link, doctor, backup, restore)
} | {"import": import_file}


IMPORT_NAMES = {
    "name": "name of the run",
    "experiment": "name of its experiment; without it the file's name",
    "variant": "runs of one variant in one experiment are seeds of each other; without it the run's name",
    "seed": "the run's seed",
    "step": "column that counts the steps; without it the best guess",
    "run": "one run of the file, as --dry-run lists them; without it all of them",
    "into": "id of an imported run that gets the completions of the file",
    "format": "such as csv, parquet or trackio (docs/importing.md); without it known by the content",
}

SECRET = ("_TOKEN", "_KEY", "_SECRET", "_URL")
"""Ends of the names of settings whose values are not shown, not even in part."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m backend.cli", description="Launch GRPO runs, compare them, read their rollouts."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    parsers = {name: commands.add_parser(name, help=command.__doc__) for name, command in COMMANDS.items()}
    for name in ("token", "link"):
        parsers[name].add_argument(
            "--viewer", action="store_true", help="for a viewer, who can read everything and change nothing"
        )
    parsers["token"].add_argument(
        "--writer", metavar="NAME", help="for a training machine, which can only push runs of its own"
    )
    parsers["backup"].add_argument("to", help="directory to create")
    parsers["restore"].add_argument("source", help="directory that `backup` created")
    parsers["restore"].add_argument("--overwrite", action="store_true", help="replace what is there")
    importing = parsers["import"]
    importing.add_argument("file", help="the log")
    importing.add_argument("--dry-run", action="store_true", help="say what would be imported, store nothing")
    for name, meaning in IMPORT_NAMES.items():
        importing.add_argument(f"--{name}", help=meaning)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what the user can mend is one sentence, not a traceback."""
    arguments = vars(_parser().parse_args(argv))
    command = COMMANDS[arguments.pop("command")]
    try:
        return command(Settings(), **arguments)
    except ValidationError as error:
        for problem in error.errors():
            name = str(problem["loc"][0]).upper() if problem["loc"] else "settings"
            sentence = problem["msg"].removeprefix("Value error, ")
            given = "" if name.endswith(SECRET) else f"={redact(str(problem['input']))}"
            print(f"  {name}{given}: {redact(sentence)}", file=sys.stderr)
    except GrpoLabError as error:
        print(f"  {error.detail}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
