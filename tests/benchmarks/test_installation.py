"""The installation that benchmarks measure."""

import tempfile

import pytest

from benchmarks.common.installation import installation

pytestmark = pytest.mark.nightly


def test_the_directory_of_temporary_files_keeps_its_mode(tmp_path, monkeypatch):
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with installation("sqlite") as lab:
        assert lab.root.parent == tmp_path
        assert lab.root.stat().st_mode & 0o777 == 0o711
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_a_cache_stays_readable(tmp_path):
    tmp_path.chmod(0o755)
    with installation("sqlite", tmp_path) as lab:
        assert lab.state.is_dir()
    assert tmp_path.stat().st_mode & 0o777 == 0o755
