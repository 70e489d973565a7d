"""Paths that a sandboxed process can see: the interpreter, its packages and the project's own code."""

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from backend.base.locations import CODE_ROOT, FILES_ROOT
from backend.base.settings import Settings

OWN_CODE = ("backend", "worker")

SYSTEM = (
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/sbin/ldconfig",  # ctypes asks it where a library lies
    "/nix/store",
)
"""Directories and files in which the loader finds shared libraries."""

NETWORK = (
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
)
"""Files needed to resolve a name and to check a certificate."""

PROGRAMS = ("/bin", "/usr/bin", "/usr/local/bin")


def code_paths(settings: Settings, *, module: str = "") -> list[Path]:
    """Existing files and directories with code; `module` is a plugin's, which may lie anywhere.

    A directory that holds the home directory, the state or the datasets is not among them, whatever the
    import path says.
    """
    private = [Path.home(), settings.state, settings.datasets_dir.absolute(), settings.models_dir.absolute()]
    interpreter = map(Path, (*SYSTEM, sys.prefix, sys.base_prefix))
    checkout = CODE_ROOT if FILES_ROOT == CODE_ROOT else None  # which holds more than code, whatever its name
    imported = (path for path in map(Path, sys.path) if path.resolve() != checkout)
    candidates = [*interpreter, *(CODE_ROOT / name for name in OWN_CODE), *imported, *_places_of(module)]
    return _existing(path for path in candidates if not any(_holds(path, secret) for secret in private))


def existing(names: Iterable[str]) -> list[Path]:
    """Return the paths that this machine has."""
    return _existing(map(Path, names))


def _existing(paths: Iterable[Path]) -> list[Path]:
    """Return each absolute path that exists, once, and not what lies below another one."""
    present = sorted({path for path in paths if path.is_absolute() and path.exists()})
    return [path for path in present if not any(parent in present for parent in path.parents)]


def _holds(directory: Path, secret: Path) -> bool:
    return any(path == secret or path in secret.parents for path in (directory, directory.resolve()))


def _places_of(module: str) -> Iterator[Path]:
    """Yield the paths of a module's top package, which need not be a directory of the import path."""
    spec = importlib.util.find_spec(module.partition(".")[0]) if module else None
    if spec is None:
        return
    for location in spec.submodule_search_locations or ([spec.origin] if spec.origin else []):
        yield Path(location).absolute()
