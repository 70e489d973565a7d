"""Tests of the search in completions, lift and labels from a user's view."""

import re

import pytest
from playwright.sync_api import expect

from backend.rollouts.store import pack_groups, write_groups
from backend.storage.rollout_words import index_groups
from tests.browser.payloads import PAYLOADS
from tests.browser.service import running_service
from tests.factories import MadeCompletion, MadeGroup

PLANTED_PHRASE = "I have verified this twice"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("searched")
        service.train(service.trained, 3, end="finished")
        with service.sessions.begin() as session:
            for step in range(10, 40):
                spread = f". {PLANTED_PHRASE}" if step >= 25 else ""
                completions = tuple(
                    MadeCompletion(
                        text=f"So 1+1={n} is the answer{spread}", reward=float(n == 2), correct=n == 2
                    )
                    for n in range(4)
                )
                write_groups(
                    session, pack_groups(service.trained, step, 1, [MadeGroup(completions=completions)])
                )
            texts = tuple(MadeCompletion(text=f"hostile {text}") for text in PAYLOADS)
            write_groups(session, pack_groups(service.trained, 5, 1, [MadeGroup(completions=texts)]))
        for _ in index_groups(service.sessions):
            pass
        yield service


def open_search(page, service, query=""):
    page.goto(f"/run/{service.trained}?tab=rollouts&view=search{query}")
    expect(page.get_by_label("Matches over steps")).to_be_visible()


@pytest.mark.nightly
def test_a_phrase_that_spreads_is_found_in_three_clicks(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("button", name="Lift", exact=True).click()
    page.get_by_role("button", name=re.compile("verified this")).first.click()
    expect(page).to_have_url(re.compile(r"q=%22.*verified"))
    expect(page.locator(".search-result").first).to_contain_text(f"{PLANTED_PHRASE}")
    bars = page.locator(".search-bars button")
    expect(bars.filter(has=page.locator("span[style*='height: 100%']"))).to_have_count(15)
    assert page.get_by_label("step 25: 4 of 4").count() == 1
    assert page.get_by_label("step 24: 0 of 4").count() == 1


def test_the_strip_narrows_the_steps_and_is_in_the_address(page, service):
    open_search(page, service, "&q=verified")
    page.get_by_label("step 30: 4 of 4").click()
    expect(page).to_have_url(re.compile("from=30&to=30"))
    expect(page.locator(".search-result")).to_have_count(4)
    page.reload()
    expect(page.locator(".search-result")).to_have_count(4)
    assert page.locator("mark").all_inner_texts() == ["verified"] * 4


def test_a_result_opens_in_its_group(page, service):
    open_search(page, service, "&q=verified&from=30&to=30&right=true")
    page.get_by_role("button", name=re.compile("step 30 ·")).click()
    expect(page.locator(".rollout.is-found")).to_have_count(1)
    expect(page.locator("article.rollout")).to_have_count(4)


def test_an_error_points_at_its_character(page, service):
    open_search(page, service)
    field = page.get_by_label("Search completions")
    field.fill('check "this')
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("this quotation mark is not closed")
    assert page.locator(".query-error pre").inner_text().splitlines()[1].index("^") == 6


def test_a_label_is_given_with_its_reason_and_found(page, service):
    open_search(page, service, "&q=verified&from=31&to=31&right=true")
    page.get_by_role("button", name="+ label").click()
    page.get_by_role("button", name="hacked", exact=True).click()
    page.get_by_label("Why").fill("claims <b>without</b> checking")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".label-note")).to_contain_text("claims <b>without</b> checking")
    expect(page.locator(".label-note")).to_contain_text("operator")
    open_search(page, service, "&label=hacked")
    expect(page.locator(".search-result")).to_have_count(1)
