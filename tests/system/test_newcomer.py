"""Tests of a new user's first command, with each broker and in unusual locations (row 30 of the plan).

The short form tests one combination up to the first step of a demo run. GRPOLAB_NEWCOMERS=all tests all
nine combinations, and prints the seconds until the first and both runs of the demo have finished."""

import os

import pytest

from tests.system.newcomer import BROKERS, LOCATION_BY_NAME, Newcomer

pytestmark = pytest.mark.nightly

IS_LONG = os.environ.get("GRPOLAB_NEWCOMERS") == "all"
COMBINATIONS = [(broker, location) for broker in BROKERS for location in LOCATION_BY_NAME]
SHORT_COMBINATIONS = [("path", "letters")]
BOTH_FINISHED = "2 = (SELECT count(*) FROM run WHERE status = 'finished')"
MAX_SECONDS = 3000


@pytest.mark.timeout(3600 if IS_LONG else 300)
@pytest.mark.parametrize(("broker", "location"), COMBINATIONS if IS_LONG else SHORT_COMBINATIONS)
def test_one_command_leads_a_new_user_to_a_run(broker, location):
    settings = {} if IS_LONG else {"WORKER_SLOTS": 1, "OMP_NUM_THREADS": 1}
    with Newcomer(broker, location, **settings) as newcomer:
        newcomer.wait_until("last_step >= 1", MAX_SECONDS)
        if IS_LONG:
            first = newcomer.wait_until("status = 'finished'", MAX_SECONDS)
            seconds_of_both = newcomer.wait_until(BOTH_FINISHED, MAX_SECONDS)
            user_and_network = f"another user: {newcomer.is_somebody_else}, offline: {newcomer.is_offline}"
            print(f"\n{broker}, {location}: {first:.0f} s, {seconds_of_both:.0f} s, {user_and_network}")
        output = newcomer.output_text()
        brokers = [argv for argv in newcomer.commands().values() if "valkey-server" in argv[0]]
        if broker == "files":
            assert ("the queue uses files" in output, brokers) == (True, []), output
        else:
            assert len(brokers) == 1, output
            is_on_path = brokers[0][0].startswith(str(newcomer.base / "bin"))
            assert is_on_path == (broker == "path"), brokers
        assert newcomer.state.stat().st_mode & 0o777 == 0o700
        assert newcomer.open_to_others() == []
        assert newcomer.end() == 0, newcomer.output_text()
        assert "Traceback" not in "".join(
            path.read_text() for path in (newcomer.state / "logs").iterdir() if path.suffix == ".log"
        )
