"""Locations of the application's files, in a checkout or in an installed package."""

from pathlib import Path

CODE_ROOT = Path(__file__).resolve().parents[2]
"""The directory that holds the packages `backend` and `worker`: the checkout, or site-packages."""

_INSTALLED = CODE_ROOT / "backend" / "files"

FILES_ROOT = _INSTALLED if _INSTALLED.is_dir() else CODE_ROOT
"""The directory that holds `frontend`, `migrations` and `docs`: the checkout, or a folder of the package."""
