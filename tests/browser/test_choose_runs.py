"""Tests of the run list: queries, selections of thousands, actions with undo, and saved views."""

from urllib.parse import parse_qs

import pytest
from playwright.sync_api import expect
from sqlalchemy import insert

from backend.config.merge import resolve
from backend.runs.rows import run_row
from backend.storage.models import MetricKey, Run
from tests.browser.service import open_context, running_service
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

RUN_COUNT = 5_213
FORMATTED_COUNT = "5\u202f213"
LONGEST_TASK_MS = 1_000
"""A page that computes longer feels frozen. Other processes may use the cores at the same time."""


def make_row(number):
    last = {"reward/mean": number / RUN_COUNT, "eval/accuracy": 1 - number / RUN_COUNT} if number % 2 else {}
    config = resolve({"preset": "dapo" if number % 3 else "grpo"}, None, number % 5)
    row = run_row(f"sweep-{number:04}-with-a-rather-long-name", "dapo" if number % 3 else "grpo", config)
    return row | {
        "status": "finished",
        "last_step": config.steps,
        "created_at": 1_790_000_000.0 + number,
        "summary": {"step": config.steps, "last": last, "best": {}},
        "tags": ["old"] if number % 100 == 0 else [],
    }


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with 5,213 finished runs."""
    with running_service(tmp_path_factory.mktemp("many")) as service:
        with service.sessions.begin() as session:
            session.add_all([MetricKey(name="reward/mean"), MetricKey(name="eval/accuracy")])
            session.execute(insert(Run), [make_row(number) for number in range(RUN_COUNT)])
        yield service


def search(page, query):
    field = page.get_by_role("combobox", name="Search runs")
    field.fill(query)
    field.press("Escape")
    return field


def test_a_query_narrows_the_list_is_in_the_address_and_marks_its_errors(page):
    page.goto("/runs")
    expect(page.get_by_text(f"100 of {FORMATTED_COUNT} runs")).to_be_visible()
    search(page, "reward/mean > .999 and not tag = old")
    expect(page.get_by_text("2 runs", exact=True)).to_be_visible()
    assert "q=reward/mean" in page.url
    page.reload()
    expect(page.get_by_text("2 runs", exact=True)).to_be_visible()
    search(page, "tag = old and acuracy > .5")
    error = page.locator(".query-error")
    expect(error).to_contain_text("did you mean eval/accuracy")
    assert error.locator("pre").inner_text().splitlines()[1] == " " * 14 + "^"
    expect(page.get_by_role("row").nth(2)).to_be_visible()  # the list is unchanged


def test_a_filter_offers_the_values_of_all_runs_and_not_only_of_loaded_ones(page):
    page.goto("/runs?status=finished")
    expect(page.get_by_text(f"100 of {FORMATTED_COUNT} runs")).to_be_visible()
    page.get_by_role("button", name="tag", exact=True).click()
    page.get_by_placeholder("Find tag").fill("OL")
    page.get_by_role("button", name="old 53").click()
    expect(page.get_by_text("53 runs", exact=True)).to_be_visible()
    assert parse_qs(page.url.partition("?")[2]) == {"status": ["finished"], "tag": ["old"]}


def test_five_thousand_matching_runs_are_selected_tagged_and_untagged_without_freezing(page):
    page.goto("/runs?q=sweep")
    expect(page.get_by_text(f"100 of {FORMATTED_COUNT} runs")).to_be_visible()
    # the charts have been drawn
    expect(page.locator(".panel .js-plotly-plot .main-svg").last).to_be_attached()
    page.get_by_label("Select all").check()
    page.evaluate(
        """() => { window.longest = 0;
                   new PerformanceObserver((list) => {
                       for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
                   }).observe({ type: 'longtask' }); }"""
    )
    page.get_by_role("button", name=f"Select all {FORMATTED_COUNT}").click()
    expect(page.get_by_text(f"{FORMATTED_COUNT} selected")).to_be_visible()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_label("Tag", exact=True).fill("mine")
    page.get_by_role("dialog").get_by_role("button", name="Tag", exact=True).click()
    message = page.get_by_text(f"{FORMATTED_COUNT} runs tagged mine")
    expect(message).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(f"{FORMATTED_COUNT} runs no longer tagged mine")).to_be_visible()
    assert page.evaluate("longest") < LONGEST_TASK_MS
    search(page, "tag = mine")
    expect(page.get_by_text("No matching runs")).to_be_visible()


def test_a_range_is_selected_with_shift_deleted_and_restored_by_undo(page):
    page.goto("/runs?q=reward/mean > .99&sort=name")
    boxes = page.get_by_role("checkbox", name="Select sweep")
    expect(boxes.first).to_be_visible()
    boxes.nth(1).click()
    boxes.nth(5).click(modifiers=["Shift"])
    expect(page.get_by_text("5 selected")).to_be_visible()
    boxes.nth(3).click()
    expect(page.get_by_text("4 selected")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("4 runs moved to trash")).to_be_visible()
    expect(page.get_by_text("22 runs", exact=True)).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("26 runs", exact=True)).to_be_visible()


def test_a_view_is_saved_for_everybody_opened_and_deleted(page, browser, service):
    page.goto("/runs?q=tag = old&sort=name&columns=verdict,tags&group=variant")
    page.get_by_role("button", name="views").click()
    page.get_by_role("button", name="Save this view").click()
    page.get_by_label("Name of the view").fill("old <b>ones</b>")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("View old <b>ones</b> saved")).to_be_visible()
    context = open_context(browser, service)
    other_page = context.new_page()
    other_page.goto("/runs")
    other_page.get_by_role("button", name="views").click()
    other_page.get_by_role("button", name="old <b>ones</b>", exact=True).click()
    expect(other_page.get_by_text("53 runs", exact=True)).to_be_visible()
    assert parse_qs(other_page.url.partition("?")[2]) == parse_qs(page.url.partition("?")[2])
    context.close()
    page.get_by_role("button", name="views").click()
    page.get_by_label("Delete the view old <b>ones</b>").click()
    expect(page.get_by_text("No saved views yet.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    wait_for(lambda: service.get("/views")["items"], "the view did not come back")
    assert [view["name"] for view in service.get("/views")["items"]] == ["old <b>ones</b>"]
