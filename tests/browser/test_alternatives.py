"""Tests of the alternatives of a token, in a browser."""

import numpy as np
import pytest
from playwright.sync_api import expect

from backend.rollouts.records import CompletionRecord
from backend.rollouts.store import pack_groups, write_groups
from tests.browser.service import HOSTILE, running_service
from tests.browser.watched import watched_page
from tests.factories import MadeCompletion, MadeGroup, make_run

pytestmark = pytest.mark.nightly

PIECES = ("<think>", "85", "+", "60", "=", "145", "</think>", HOSTILE, "\n", " so", " \\boxed{", "145", "}")


def completion(strings, ids):
    """Return a completion whose sampled tokens have probability 0.75, followed by the next id at 0.25."""
    count = len(strings)
    arrays = {
        "logprob": np.full(count, np.log(0.75), np.float32),
        "entropy": np.linspace(0, 2.5, count, dtype=np.float32),
        "alternative_0_id": np.array(ids, np.float32),
        "alternative_0_logprob": np.full(count, np.log(0.75), np.float32),
        "alternative_1_id": np.array(ids, np.float32) + 1,
        "alternative_1_logprob": np.full(count, np.log(0.25), np.float32),
    }
    return CompletionRecord(
        text="".join(strings), token_strings=strings, token_ids=ids, reward=1.0, rewards={"correctness": 1.0},
        advantage=0.5, finish_reason="stop", correct=True, arrays=arrays,
    )  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    ids = list(range(len(PIECES)))
    with_alternatives = MadeGroup(completions=(completion(PIECES, ids), completion(PIECES[:7], ids[:7])))
    without_alternatives = MadeGroup(prompt_index=1, completions=(MadeCompletion(),))
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        with service.sessions.begin() as session:
            run = make_run(session, last_step=1, config={"recording": {"alternatives": 2}})
            write_groups(session, pack_groups(run.id, 1, 1, [with_alternatives, without_alternatives]))
        service.trained = run.id
        yield service


@pytest.fixture
def page(stage, browser):
    with watched_page(browser, stage.base, viewport={"width": 1400, "height": 1000}) as page:
        yield page


def test_the_most_probable_tokens_are_listed_as_text(page, stage):
    page.goto(f"/run/{stage.trained}?tab=rollouts&step=1&prompt=1&colour=entropy&at=0.6")
    token_list = page.get_by_label("The likeliest tokens here")
    expect(token_list).to_contain_text("</think>")
    expect(token_list).to_contain_text("75.0 %")
    expect(token_list).to_contain_text("25.0 %")
    expect(token_list).to_contain_text("<img␣src=x␣onerror=")
    assert page.locator(".readout").locator("img, script").count() == 0
    page.goto(f"/run/{stage.trained}?tab=rollouts&step=1&prompt=1&colour=entropy&at=0.12")
    expect(token_list).to_contain_text("id 13")
    page.goto(f"/run/{stage.trained}?tab=rollouts&step=1&prompt=2&colour=entropy&at=0.5")
    expect(page.locator(".readout")).to_contain_text("token 6")
    expect(token_list).to_have_count(0)
