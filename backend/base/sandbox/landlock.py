"""Landlock rules that limit the files a sandboxed process may read and deny it TCP connections."""

from collections.abc import Iterable
from pathlib import Path


def restrict(
    readable_paths: Iterable[Path],
    *,
    executable_paths: Iterable[Path] = (),
    devices: Iterable[Path] = (),
    network: bool,
    scratch: Path,
) -> None:
    """Confine this process and its future children, with the newest rules that the kernel supports."""
    from py_landlock import AccessFs, Landlock, Scope

    rules = Landlock(strict=False)
    for path in readable_paths:
        access = AccessFs.READ_FILE | AccessFs.READ_DIR if path.is_dir() else AccessFs.READ_FILE
        rules.add_path_rule(path, access=access)
    for path in executable_paths:
        access = AccessFs.READ_FILE | AccessFs.EXECUTE
        rules.add_path_rule(path, access=access | AccessFs.READ_DIR if path.is_dir() else access)
    for device in devices:
        rules.add_path_rule(device, access=AccessFs.READ_FILE | AccessFs.WRITE_FILE)
    rules.allow_read_write(scratch)
    if network:
        rules.allow_all_network()
        rules.allow_scope(Scope.ABSTRACT_UNIX_SOCKET)
    rules.apply()
