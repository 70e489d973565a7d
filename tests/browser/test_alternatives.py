"""Alternatives, completions of 100,000 tokens, groups of 1,024 and a tokenizer that changed, in a browser."""

import os
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.store import pack_groups, write_groups
from tests.browser.service import HOSTILE, running, viewports
from tests.browser.watched import watched
from tests.factories import make_run

pytestmark = pytest.mark.nightly

PICTURES = os.environ.get("GRPOLAB_SCREENSHOTS", "")
LONG = 100_000
PIECES = ("<think>", "85", "+", "60", "=", "145", "</think>", HOSTILE, "\n", " so", " \\boxed{", "145", "}")


def completion(strings, ids, *, alternatives=True):
    """A completion whose likeliest token is the drawn one at 0.75, then the next id at 0.25."""
    count = len(strings)
    arrays = {
        "logprob": np.full(count, np.log(0.75), np.float32),
        "entropy": np.linspace(0, 2.5, count, dtype=np.float32),
    }
    if alternatives:
        arrays |= {
            "alternative_0_id": np.array(ids, np.float32),
            "alternative_0_logprob": np.full(count, np.log(0.75), np.float32),
            "alternative_1_id": np.array(ids, np.float32) + 1,
            "alternative_1_logprob": np.full(count, np.log(0.25), np.float32),
        }
    return CompletionRecord(
        text="".join(strings), token_strings=strings, token_ids=ids, reward=1.0, rewards={"correctness": 1.0},
        advantage=0.5, finish_reason="stop", correct=True, arrays=arrays,
    )  # fmt: skip


def group(index, prompt, *completions):
    return GroupRecord(
        kind="train", prompt_index=index, prompt_id=f"p{index}", problem="sums", domain="math",
        prompt=prompt, answer="145", completions=completions,
    )  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    ids = list(range(len(PIECES)))
    groups = [
        group(0, "85+60=?", completion(PIECES, ids), completion(PIECES[:7], ids[:7])),
        group(1, "long", completion(["word "] * LONG, [7] * LONG, alternatives=False)),
        group(2, "many", *[completion([f"answer {n}"], [n], alternatives=False) for n in range(1024)]),
        # the same ids mean other words after the tokenizer changed: each completion keeps its own strings
        group(3, "changed", completion(["old"], [5]), completion(["new"], [5])),
    ]
    with running(tmp_path_factory.mktemp("lab")) as service:
        with service.sessions.begin() as session:
            run = make_run(session, last_step=1, config={"recording": {"alternatives": 2}})
            write_groups(session, pack_groups(run.id, 1, 1, groups))
        service.trained = run.id
        yield service


@pytest.fixture
def page(stage, browser):
    with watched(browser, stage.base, viewport={"width": 1400, "height": 1000}) as page:
        yield page


def test_the_likeliest_tokens_are_listed_as_text(page, stage):
    page.goto(f"/rollouts?run={stage.trained}&step=1&prompt=1&colour=entropy&at=0.6")
    listed = page.get_by_label("The likeliest tokens here")
    expect(listed).to_contain_text("</think>")
    expect(listed).to_contain_text("75.0 %")
    expect(listed).to_contain_text("25.0 %")
    expect(listed).to_contain_text("<img␣src=x␣onerror=")
    assert page.locator(".readout").locator("img, script").count() == 0
    page.goto(f"/rollouts?run={stage.trained}&step=1&prompt=1&colour=entropy&at=0.12")
    expect(listed).to_contain_text("id 13")
    page.goto(f"/rollouts?run={stage.trained}&step=1&prompt=2&colour=entropy&at=0.5")
    expect(page.locator(".readout")).to_contain_text("token 6")
    expect(listed).to_have_count(0)


@pytest.mark.nightly
def test_a_completion_of_100_000_tokens_is_drawn_in_pieces_up_to_its_last_token(page, stage):
    page.goto(f"/rollouts?run={stage.trained}&step=1&prompt=2&colour=entropy&at=0.40000")
    expect(page.locator(".readout")).to_contain_text("token 40001")
    assert page.locator("[data-token]").count() < LONG
    page.get_by_role("button", name="more").first.click()
    expect(page.locator("[data-token='40001']")).to_be_visible()


@pytest.mark.nightly
def test_a_group_of_1024_and_a_changed_tokenizer_are_shown_whole(page, stage):
    page.goto(f"/rollouts?run={stage.trained}&step=1&prompt=4&colour=entropy")
    shown = page.locator("article .model-text")
    expect(shown).to_have_text(["old", "new"])
    page.goto(f"/rollouts?run={stage.trained}&step=1&prompt=3&colour=none")
    expect(page.get_by_text("answer 0", exact=True)).to_be_visible()
    [of_group] = [
        row for row in stage.get("/rollouts", run=stage.trained, step=1)["items"] if row["prompt"] == "many"
    ]
    assert len(of_group["completions"]) == 1024


@pytest.mark.skipif(not PICTURES, reason="draws the pictures of the documentation")
@pytest.mark.parametrize(("width", "scheme"), viewports(390, 1400, 2560))
def test_pictures_of_tokens(stage, browser, scheme, width):
    with watched(browser, stage.base, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        page.goto(f"/rollouts?run={stage.trained}&step=1&prompt=1&colour=entropy&at=0.6")
        page.locator(".model-text.is-coloured").first.wait_for()
        page.wait_for_timeout(300)
        page.screenshot(path=str(Path(PICTURES) / f"tokens_{width}_{scheme}.png"))
