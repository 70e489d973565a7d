"""Runs: queries with completion, selections of thousands, actions that are taken back, saved views."""

import os
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import expect
from sqlalchemy import insert

from backend.config.merge import resolve
from backend.runs.rows import run_row
from backend.storage.models import MetricKey, Run
from tests.browser.service import opened, running, viewports
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

COUNT = 5_213
SHOWN = "5\u202f213"
LONGEST_TASK_MS = 1_000
"""A page that computes for longer than this feels frozen; other processes may hold the cores meanwhile."""
PICTURES = os.environ.get("GRPOLAB_PICTURES", "")
"""A directory: the screens are written there, to be looked at."""


def row_of(number):
    last = {"reward/mean": number / COUNT, "eval/accuracy": 1 - number / COUNT} if number % 2 else {}
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
    with running(tmp_path_factory.mktemp("many")) as service:
        with service.sessions.begin() as session:
            session.add_all([MetricKey(name="reward/mean"), MetricKey(name="eval/accuracy")])
            session.execute(insert(Run), [row_of(number) for number in range(COUNT)])
        yield service


def shoot(page, name):
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"))


def search(page, query):
    field = page.get_by_role("combobox", name="Search runs")
    field.fill(query)
    field.press("Escape")
    return field


def test_a_query_narrows_the_list_stands_in_the_address_and_says_where_it_is_wrong(page):
    page.goto("/runs")
    expect(page.get_by_text(f"100 of {SHOWN} runs")).to_be_visible()
    search(page, "reward/mean > .999 and not tag = old")
    expect(page.get_by_text("2 runs", exact=True)).to_be_visible()
    assert "q=reward/mean" in page.url
    page.reload()
    expect(page.get_by_text("2 runs", exact=True)).to_be_visible()
    shoot(page, "query")
    search(page, "tag = old and acuracy > .5")
    error = page.locator(".query-error")
    expect(error).to_contain_text("did you mean eval/accuracy")
    assert error.locator("pre").inner_text().splitlines()[1] == " " * 14 + "^"
    expect(page.get_by_role("row").nth(2)).to_be_visible()  # the list stays
    shoot(page, "query_error")


def test_fields_operators_and_values_are_completed_by_keys(page):
    page.goto("/runs")
    field = page.get_by_role("combobox", name="Search runs")
    field.click()
    field.press_sequentially("stat")
    expect(page.get_by_role("option", name="status")).to_be_visible()
    shoot(page, "completion")
    field.press("ArrowDown")
    field.press("Enter")
    expect(field).to_have_value("status ")
    field.press("ArrowDown")
    field.press("Enter")
    field.press_sequentially("fin")
    field.press("ArrowDown")
    field.press("Tab")
    expect(field).to_have_value("status = finished ")
    field.press_sequentially("a")
    expect(page.get_by_role("option", name="and")).to_be_visible()
    field.press("Escape")
    expect(page.locator(".query-options li")).to_have_count(0)


def test_five_thousand_matching_runs_are_selected_tagged_and_untagged_without_a_frozen_page(page):
    page.goto("/runs?q=sweep")
    expect(page.get_by_text(f"100 of {SHOWN} runs")).to_be_visible()
    expect(page.locator(".panel .js-plotly-plot .main-svg").last).to_be_attached()  # the charts are there
    page.get_by_label("Select all").check()
    page.evaluate(
        """() => { window.longest = 0;
                   new PerformanceObserver((list) => {
                       for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
                   }).observe({ type: 'longtask' }); }"""
    )
    page.get_by_role("button", name=f"Select all {SHOWN}").click()
    expect(page.get_by_text(f"{SHOWN} selected")).to_be_visible()
    shoot(page, "selected")
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_label("Tag", exact=True).fill("mine")
    page.get_by_role("dialog").get_by_role("button", name="Tag", exact=True).click()
    message = page.get_by_text(f"{SHOWN} runs tagged mine")
    expect(message).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(f"{SHOWN} runs no longer tagged mine")).to_be_visible()
    assert page.evaluate("longest") < LONGEST_TASK_MS
    search(page, "tag = mine")
    expect(page.get_by_text("No matching runs")).to_be_visible()


def test_a_range_is_selected_with_shift_deleted_and_taken_back(page):
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


def test_a_selection_ends_with_the_list_it_was_made_in(page):
    page.goto("/runs?q=reward/mean > .99")
    page.get_by_role("checkbox", name="Select sweep").first.click()
    expect(page.get_by_text("1 selected")).to_be_visible()
    search(page, "reward/mean > .98")
    expect(page.get_by_text("1 selected")).to_have_count(0)


def test_a_view_is_saved_for_everybody_opened_and_deleted(page, browser, service):
    page.goto("/runs?q=tag = old&sort=name&columns=verdict,tags&group=variant")
    page.get_by_role("button", name="views").click()
    page.get_by_role("button", name="Save this view").click()
    page.get_by_label("Name of the view").fill("old <b>ones</b>")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("View old <b>ones</b> saved")).to_be_visible()
    context = opened(browser, service)
    other_page = context.new_page()
    other_page.goto("/runs")
    other_page.get_by_role("button", name="views").click()
    other_page.get_by_role("button", name="old <b>ones</b>", exact=True).click()
    expect(other_page.get_by_text("53 runs", exact=True)).to_be_visible()
    assert parse_qs(other_page.url.partition("?")[2]) == parse_qs(page.url.partition("?")[2])
    shoot(other_page, "view")
    context.close()
    page.get_by_role("button", name="views").click()
    page.get_by_label("Delete the view old <b>ones</b>").click()
    expect(page.get_by_text("No saved views yet.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    wait_for(lambda: service.get("/views")["items"], "the view did not come back")
    assert [view["name"] for view in service.get("/views")["items"]] == ["old <b>ones</b>"]


SETTINGS = "by=run&metrics=reward&x=tokens&smoothing=0.6&log=y&zoom=2,8&order=reward/mean"


def test_a_comparison_is_saved_by_a_query_and_shows_the_runs_that_match_when_it_is_opened(page, service):
    ids = [run["id"] for run in service.get("/runs", query="sweep-000", limit=2)["items"]]
    page.goto(f"/compare?runs={','.join(ids)}&{SETTINGS}")
    page.get_by_role("button", name="views").click()
    page.get_by_role("button", name="Save this view").click()
    page.get_by_label("Name of the view").fill("early & tagged")
    page.get_by_label("Runs that match a query").fill("tag = early")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("View early & tagged saved")).to_be_visible()
    actions = [
        {"action": "tag", "tag": "early", "ids": ids[:1]},
        {"action": "tag", "tag": "early", "ids": ids},
    ]
    page.goto("/compare")
    for action, count in zip(actions, ("1 run ·", "2 runs ·"), strict=True):
        service.client.post("/runs/actions", json=action).raise_for_status()
        page.goto("/compare" if count[0] == "1" else "/runs")
        if count[0] == "2":
            page.get_by_role("button", name="views").click()
        page.get_by_text("early & tagged", exact=True).click()
        expect(page.locator(".page-head")).to_contain_text(count)
    assert parse_qs(page.url.partition("?")[2]) == parse_qs(f"{SETTINGS}&query=tag = early")
    shoot(page, "comparison")


def test_a_comparison_of_fixed_runs_is_saved_as_it_is_and_deleted(page, service):
    ids = [run["id"] for run in service.get("/runs", limit=3)["items"]]
    page.goto(f"/compare?runs={','.join(ids)}&{SETTINGS}&hide={ids[1]}&baseline={ids[2]}")
    page.get_by_role("button", name="views").click()
    page.get_by_role("button", name="Save this view").click()
    page.get_by_label("Name of the view").fill("three")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("View three saved")).to_be_visible()
    before = parse_qs(page.url.partition("?")[2])
    page.goto("/compare")
    page.get_by_role("link", name="three").click()
    expect(page.locator(".page-head")).to_contain_text("3 runs")
    assert parse_qs(page.url.partition("?")[2]) == before
    page.get_by_role("button", name="views").click()
    page.get_by_label("Delete the view three").click()
    expect(page.get_by_text("View three deleted")).to_be_visible()
    assert "three" not in [view["name"] for view in service.get("/views")["items"]]


def test_a_run_has_the_same_colour_in_every_browser(page, browser, service):
    def colours(page):
        page.goto("/runs?q=reward/mean > .99&sort=name")
        expect(page.locator(".eye line")).to_have_count(10)
        return page.locator(".eye line").evaluate_all(
            "lines => lines.map(line => line.getAttribute('stroke'))"
        )

    seen = colours(page)
    context = opened(browser, service)
    other_page = context.new_page()
    other_page.goto("/runs?sort=-name")  # other runs first
    expect(other_page.locator(".eye line")).to_have_count(10)
    assert colours(other_page) == seen
    context.close()


def test_addresses_that_people_guess_lead_to_the_run(page, service):
    run = service.get("/runs", limit=1)["items"][0]["id"]
    page.goto(f"/runs/{run}?tab=config")
    assert page.url.endswith(f"/run/{run}?tab=config")
    page.goto(f"/rollouts/{run}")
    assert page.url.endswith(f"/rollouts?run={run}")


@pytest.mark.parametrize(("width", "scheme"), viewports(700, 1440))
def test_the_name_of_a_run_is_read_at_1440_pixels(browser, service, width, scheme):
    context = opened(browser, service, width, scheme)
    page = context.new_page()
    page.goto("/runs")
    name = page.locator(".run-cell a").first
    expect(name).to_be_visible()
    assert page.get_by_role("heading", name="Runs", level=1).count() == 1
    shoot(page, f"runs_{width}_{scheme}")
    if width == 1440:
        assert name.bounding_box()["width"] >= 120
    context.close()
