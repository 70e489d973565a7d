"""Sandbox operations that list the contents of an archive, without unpacking it or opening its names."""

import tarfile
import zipfile
from typing import Any

from backend.base.sandbox.operation import Operation, Request

MAX_MEMBERS = 5_000
MAX_NAME = 500


def zip_members(request: Request) -> dict[str, Any]:
    """Return the files of a zip archive: name, offset of the header, packed size, size, and whether it is
    deflated.
    """
    with zipfile.ZipFile(request["path"]) as archive:
        infos = archive.infolist()
    files, other_files = list[Any](), 0
    for info in infos:
        if info.is_dir():
            continue
        is_link = info.external_attr >> 28 == 0xA
        is_readable = (
            info.compress_type in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} and not info.flag_bits & 1
        )
        if is_link or not is_readable or len(files) >= MAX_MEMBERS:
            other_files += 1
            continue
        is_deflated = info.compress_type == zipfile.ZIP_DEFLATED
        files.append(
            [info.filename[:MAX_NAME], info.header_offset, info.compress_size, info.file_size, is_deflated]
        )
    return {"files": files, "others": other_files}


def tar_members(request: Request) -> dict[str, Any]:
    """Return the regular files of a tar archive: name, offset of the content, and its size twice."""
    files, other_files = list[Any](), 0
    with tarfile.open(request["path"], "r:") as archive:
        for member in archive:
            if member.isdir():
                continue
            if not member.isreg() or member.issparse() or len(files) >= MAX_MEMBERS:
                other_files += 1
                continue
            files.append([member.name[:MAX_NAME], member.offset_data, member.size, member.size, False])
    return {"files": files, "others": other_files}


OPERATIONS = {"zip": Operation(zip_members), "tar": Operation(tar_members)}
