"""The size of the files in the tree: nothing big without a reason."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_BYTES = 300_000
BIG = {
    "benchmarks/diagnosis/runs.jsonl.zst": "the series of the runs that the diagnosis is judged on",
    "benchmarks/evidence/runs.jsonl.zst": "the curves of all evidence runs",
    "requirements-dev.lock": "the hashes of all files that the tests may install, an S3 server among them",
    "worker/policy/tiny/model.safetensors": "the policy of the demo, which trains without a download",
    "worker/policy/tiny_moe/model.safetensors": "the same as a mixture of experts",
}


def test_a_file_is_small_or_has_a_reason():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [name for name in listed.stdout.split("\0") if name and not name.startswith("frontend/vendor/")]
    assert len(files) > 500
    big = {name for name in files if (ROOT / name).is_file() and (ROOT / name).stat().st_size > MAX_BYTES}
    assert big == set(BIG)
