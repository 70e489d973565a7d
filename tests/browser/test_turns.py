"""Tests of a completion's turns on the rollouts page, with hostile text, and of tools in the form."""

import pytest
from playwright.sync_api import expect

from backend.rollouts.store import pack_groups, write_groups
from tests.browser.service import running_service
from tests.browser.watched import watched_page
from tests.factories import MadeCompletion, MadeGroup, make_experiment, make_run

pytestmark = pytest.mark.nightly

HOSTILE_TEXT = "<img src=x onerror=alert(1)>\u202e</section>"
CALL, ANSWER = "[lookup: a]", f"[{HOSTILE_TEXT}]"
COMPLETION_TEXT = f"so {CALL}{ANSWER} it is"


def make_turn(outcome, call, observation, **changes):
    defaults = {"tool": "lookup", "outcome": outcome, "seconds": 0.25, "is_cut": False}
    return defaults | {"call": call, "observation": observation, "tokens": observation} | changes


FIRST_TURN = make_turn("ok", [3, 14], [14, 14 + len(ANSWER)], is_cut=True)
UNANSWERED_TURN = make_turn("unanswered", [0, 11], [11, 11], tool="<b>look</b>")


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        with service.sessions.begin() as session:
            run = make_run(session, last_step=1, experiment_id=make_experiment(session).id)
            group = MadeGroup(
                completions=(
                    MadeCompletion(text=COMPLETION_TEXT, turns=(FIRST_TURN,)),
                    MadeCompletion(text=CALL, turns=(UNANSWERED_TURN,)),
                    MadeCompletion(text="no call"),
                )
            )
            write_groups(session, pack_groups(run.id, 1, 1, [group]))
        service.trained = run.id
        yield service


@pytest.fixture
def page(stage, browser):
    with watched_page(browser, stage.base, viewport={"width": 1400, "height": 1200}) as page:
        yield page


def test_calls_and_observations_are_blocks_of_text(page, stage):
    page.goto(f"/run/{stage.trained}?tab=rollouts&step=1&colour=none")
    first, second, third = (page.locator(".rollout").nth(index) for index in range(3))
    expect(first.locator(".turn")).to_have_count(2)
    call, observation = first.locator(".turn.is-call"), first.locator(".turn.is-observation")
    expect(call.locator(".model-text")).to_have_text(CALL)
    expect(observation.locator(".model-text")).to_contain_text("<img src=x onerror=alert(1)>U+202E</section>")
    expect(observation).to_contain_text("cut")
    expect(observation).to_contain_text("0.250 s; not part of the loss")
    expect(first.locator(".model-text").last).to_have_text(" it is")
    expect(second.locator(".turn-head")).to_contain_text("<b>look</b>")
    expect(second.locator(".turn-head")).to_contain_text("unanswered")
    expect(third.locator(".turn")).to_have_count(0)
    assert page.locator(".rollout img, .rollout .turn-head b b").count() == 0


def test_observations_are_marked_among_the_tokens(page, stage):
    page.goto(f"/run/{stage.trained}?tab=rollouts&step=1&colour=logprob")
    first = page.locator(".rollout").first
    expect(first.locator(".token.is-observation")).to_have_count(len(ANSWER))
    first.locator('[data-token="20"]').hover()
    expect(page.locator(".readout")).to_contain_text("observation of a tool: not part of the loss")
