"""Build both images with the Dockerfile's own steps and use them: `make test-images`, without Docker.

buildah builds in chroot isolation, which needs root but no namespaces. mmdebstrap makes the base image
from Debian's packages, without a registry; `--base` names another one. A run of two steps is then trained
by the worker's image on Postgres and Redis, and launched through the API's image.

    python -m tests.images [--base python:3.11-slim] [--volume /a:/b:ro ...] [--build-arg NAME=VALUE ...]"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.servers import shut_down, start_postgres, start_redis
from tests.system.lab import TOKEN, Client
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
REQUIRED_PROGRAMS = ("buildah", "mmdebstrap")
BASE_IMAGE = "localhost/grpolab-test-base"
DEBIAN_PACKAGES = "python3,python3-pip,ca-certificates"
USER_ID = 10001

PYTHON_IMAGE_SETUP = """
ln -sf python3 /usr/bin/python
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
"""
"""Commands that give Debian the differences of `python:3-slim`: the command's name and a global pip."""


def main() -> int:
    """Build, check and train, and print each finding on one line."""
    arguments = _arguments()
    missing = [name for name in REQUIRED_PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        obstacle = (
            f"apt-get install {' '.join(missing)}" if missing else "only root may build in chroot isolation"
        )
        print(f"skipped: the images are not built here ({obstacle})")
        return 0
    base = arguments.base or _make_base(arguments.suite)
    flags = [argument for volume in arguments.volume for argument in ("--volume", volume)]
    flags += [
        argument
        for build_arg in [f"BASE={base}", *arguments.build_arg]
        for argument in ("--build-arg", build_arg)
    ]
    for target in ("api", "worker"):
        _buildah(
            "build", "--isolation", "chroot", *flags, "--target", target, "--tag", _tag(target), str(ROOT)
        )
    _look()
    _train()
    print("both images were built, and a run was trained")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-images")
    parser.add_argument(
        "--base", default="", help="an image with Python; made of Debian's packages without it"
    )
    parser.add_argument("--suite", default="bookworm", help="Debian's release for that")
    parser.add_argument(
        "--volume", action="append", default=[], help="given to buildah: certificates, settings of pip"
    )
    parser.add_argument(
        "--build-arg", action="append", default=[], help="given to buildah, e.g. TORCH_INDEX_URL=..."
    )
    return parser.parse_args()


def _tag(target: str) -> str:
    return f"localhost/grpolab-test-{target}"


def _buildah(*arguments: str) -> str:
    """Run buildah with its output shown except for the last line, which names the result."""
    print("$ buildah", *arguments, flush=True)
    result = subprocess.run(["buildah", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout.strip().rpartition("\n")[2]


def _make_base(suite: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        archive = f"{directory}/base.tar"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={DEBIAN_PACKAGES}", suite, archive],
            check=True,
        )
        container = _buildah("from", "scratch")
        _buildah("add", container, archive, "/")
    _buildah("run", "--isolation", "chroot", container, "--", "sh", "-ec", PYTHON_IMAGE_SETUP)
    _buildah("commit", "--rm", container, BASE_IMAGE)
    return BASE_IMAGE


@contextmanager
def _container(target: str, *flags: str) -> Iterator[list[str]]:
    """Yield the command prefix that runs in a container of an image."""
    container = _buildah("from", _tag(target))
    try:
        yield ["buildah", "run", "--isolation", "chroot", *flags, container, "--"]
    finally:
        _buildah("rm", container)


def _look() -> None:
    """Check each image: its code is not writable, and only the worker's image can train."""
    for target in ("api", "worker"):
        with _container(target) as in_container:
            user = subprocess.check_output([*in_container, "id", "-u"], text=True).strip()
            assert user == str(USER_ID), f"{target} runs as {user}"
            writable = (
                subprocess.run([*in_container, "test", "-w", "/app/backend"], check=False).returncode == 0
            )
            assert not writable, f"the code of {target} can be changed by it"
            has_torch = subprocess.run(
                [*in_container, "python", "-c", "import torch"], check=False, stderr=subprocess.DEVNULL
            )
            assert (has_torch.returncode == 0) is (target == "worker"), f"{target}: torch"
            subprocess.run([*in_container, "python", "-m", "pip", "check"], check=target == "api")
    print("images: unprivileged, code not writable, torch in the worker's alone")


def _train() -> None:
    with ExitStack() as stack:
        shared_directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shared_directory.chmod(0o755)
        for name in ("state", "models", "datasets"):
            (shared_directory / name).mkdir(mode=0o700)
            os.chown(shared_directory / name, USER_ID, USER_ID)
        postgres, redis = (
            start_postgres(shared_directory / "postgres"),
            start_redis(shared_directory / "redis"),
        )
        stack.callback(shut_down, postgres.pid)
        stack.callback(shut_down, redis.pid)
        for name in ("postgres", "redis"):
            (shared_directory / name).chmod(0o755)
        (shared_directory / "redis" / "redis.sock").chmod(0o777)
        port = free_port()
        flags = _flags(shared_directory, {"PORT": str(port), "GRPOLAB_TOKEN": TOKEN})
        for target, command in (("api", "serve"), ("worker", "worker")):
            in_container = stack.enter_context(_container(target, *flags))
            stack.enter_context(_running([*in_container, "python", "-m", "backend.service", command]))
        client = Client(port)
        wait_for(client.is_alive, seconds=120)
        wait_for(lambda: client.get("/workers")["items"], seconds=120)
        run_id = client.launch(steps=2)
        run = client.wait_for_status(run_id, "finished", seconds=300)
        checkpoints = client.get(f"/runs/{run_id}/checkpoints")["items"]
        assert checkpoints, "no checkpoint"
        print(f"trained: {run['last_step']} steps, {len(checkpoints)} checkpoint, {run['status']}")


def _flags(shared_directory: Path, environment: dict[str, str]) -> list[str]:
    targets = {name: f"/{name}" for name in ("state", "models", "datasets", "postgres", "redis")}
    variables = {
        "STATE_DIR": "/state",
        "MODELS_DIR": "/models",
        "DATASETS_DIR": "/datasets",
        "DATABASE_URL": "postgresql://postgres@/postgres?host=/postgres",
        "BROKER_URL": "redis+socket:///redis/redis.sock",
        **environment,
    }
    flags = [
        argument
        for name, target in targets.items()
        for argument in ("--volume", f"{shared_directory / name}:{target}")
    ]
    return [
        *flags,
        *(argument for name, setting in variables.items() for argument in ("--env", f"{name}={setting}")),
    ]


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
