"""Kills of the process that packs completions of earlier versions: none is lost or changed."""

import random
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from sqlalchemy import func, select

from backend.db.completions import in_pieces
from backend.db.engine import open_engine, open_sessions, reading
from backend.db.migrate import downgrade, upgrade
from backend.db.models import Rollout, RolloutGroup
from backend.rollouts.store import pack_groups, write_groups
from tests.browser.service import group_of
from tests.factories import make_run

pytestmark = pytest.mark.nightly

STEPS, KILLS = 300, 30

CONVERT = """
import sys
from backend.db.engine import open_engine, open_sessions
from backend.rollouts.conversion import convert
sessions = open_sessions(open_engine(sys.argv[1]))
print("began", flush=True)
for _ in convert(sessions):
    print("packed", flush=True)
    sys.stdin.readline()
"""


def stored(url):
    """All completions, and how many are rows still."""
    engine = open_engine(url)
    with reading(open_sessions(engine)) as session:
        groups = session.scalars(select(RolloutGroup.id).order_by(RolloutGroup.id)).all()
        found = [
            (each.id, each._replace(own_id="")) for _, some in in_pieces(session, groups) for each in some
        ]
        rows = session.scalar(select(func.count()).select_from(Rollout))
    engine.dispose()
    return found, rows


def test_a_conversion_that_is_killed_again_and_again_loses_no_completion(empty_url):
    upgrade(empty_url)
    engine = open_engine(empty_url)
    with open_sessions(engine).begin() as session:
        run = make_run(session).id
        for step in range(STEPS):
            groups = [group_of("train", step, index) for index in range(3)]
            write_groups(session, pack_groups(run, step, 1, groups))
    engine.dispose()
    before, _ = stored(empty_url)
    downgrade(empty_url, "0028")
    upgrade(empty_url)
    assert stored(empty_url) == (before, len(before))
    chance, sizes = random.Random(1), []
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", CONVERT, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        process.stdout.readline()
        if chance.random() < 0.5:
            process.stdout.readline()
            with suppress(BrokenPipeError):  # all is packed
                process.stdin.write(b"\n")  # one more transaction
        time.sleep(chance.uniform(0, 0.01))
        process.kill()
        process.communicate()
        found, rows = stored(empty_url)
        assert found == before
        sizes.append(rows)
    convert = [sys.executable, "-c", CONVERT, empty_url]
    subprocess.run(convert, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    assert any(0 < rows < len(before) for rows in sizes)  # some kills came in between
    assert stored(empty_url) == (before, 0)
