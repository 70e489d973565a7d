"""Paths that a sandboxed process can see: the interpreter, its packages and the code of the project."""

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from backend.base.locations import CODE_ROOT, FILES_ROOT
from backend.base.settings import Settings

PROJECT_PACKAGES = ("backend", "worker")

SYSTEM_PATHS = (
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/sbin/ldconfig",  # ctypes runs it to find libraries
    "/nix/store",
)
"""Directories and files in which the loader finds shared libraries."""

NETWORK_PATHS = (
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
)
"""Files needed to resolve a name and to check a certificate."""

PROGRAM_PATHS = ("/bin", "/usr/bin", "/usr/local/bin")


def code_paths(settings: Settings, *, module: str = "") -> list[Path]:
    """Return the existing files and directories that contain code, including that of the plugin `module`.

    Directories that contain the home directory, the state, the models or the datasets are left out, even if
    they are on the import path.
    """
    private = [Path.home(), settings.state, settings.datasets_dir.absolute(), settings.models_dir.absolute()]
    interpreter = map(Path, (*SYSTEM_PATHS, sys.prefix, sys.base_prefix))
    checkout = CODE_ROOT if FILES_ROOT == CODE_ROOT else None  # a checkout holds more than code
    import_paths = (path for path in map(Path, sys.path) if path.resolve() != checkout)
    candidates = [
        *interpreter,
        *(CODE_ROOT / name for name in PROJECT_PACKAGES),
        *import_paths,
        *_module_paths(module),
    ]
    return _outermost_paths(
        path for path in candidates if not any(_contains(path, secret) for secret in private)
    )


def existing_paths(names: Iterable[str]) -> list[Path]:
    """Return the paths that exist on this machine."""
    return _outermost_paths(map(Path, names))


def _outermost_paths(paths: Iterable[Path]) -> list[Path]:
    """Return the existing absolute paths without duplicates and without paths inside another path."""
    present_paths = sorted({path for path in paths if path.is_absolute() and path.exists()})
    return [path for path in present_paths if not any(parent in present_paths for parent in path.parents)]


def _contains(directory: Path, secret: Path) -> bool:
    return any(path == secret or path in secret.parents for path in (directory, directory.resolve()))


def _module_paths(module: str) -> Iterator[Path]:
    """Yield the paths of a module's top-level package."""
    spec = importlib.util.find_spec(module.partition(".")[0]) if module else None
    if spec is None:
        return
    for location in spec.submodule_search_locations or ([spec.origin] if spec.origin else []):
        yield Path(location).absolute()
