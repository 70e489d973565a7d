"""Tests of slices of a comparison: grouping by any field, settings against results, and panel order."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, running_service

CELLS = [(name, lr, size) for name in ("one", "two") for lr in (1e-3, 1e-5) for size in (4, 8)]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.cells = []
        for steps, (name, rate, size) in enumerate(CELLS, 2):
            knobs = {"optimizer": {"lr": rate}, "sampling": {"group_size": size}}
            service.cells.append(service.launch(name, **knobs))
            service.train(service.cells[-1], steps, end="finished")
        for run in service.cells[:2]:
            service.client.patch(f"/runs/{run}", json={"tags": ["first", "kept"]}).raise_for_status()
        name_change = {"name": HOSTILE[:60]}
        service.client.patch(f"/runs/{service.cells[-1]}", json=name_change).raise_for_status()
        yield service


def open_comparison(page, service, query=""):
    page.goto(f"/compare?runs={','.join(service.cells)}{query}")
    expect(page.locator(".panel[data-metric='reward/mean'] .trace").first).to_be_attached()


def lines(page):
    return page.locator(".legend-item").all_inner_texts()


def test_runs_are_grouped_by_fields_that_are_found_by_typing(page, service):
    open_comparison(page, service)
    page.get_by_title("Group runs by").click()
    search = page.get_by_label("Find a field to group by")
    search.fill("group_size")
    search.press("Enter")
    page.get_by_label("variant", exact=True).uncheck()
    expect(page.locator(".legend-item")).to_have_count(2)
    assert [re.sub(r"\s+", " ", text) for text in lines(page)] == [
        "sampling.group_size 4 n 4",
        "sampling.group_size 8 n 4",
    ]
    expect(page).to_have_url(re.compile(r"by=config\.sampling\.group_size"))
    expect(page.locator(".panel[data-metric='reward/mean'] .scatterlayer .trace").first).to_be_attached()
    search.fill("optimizer.lr")
    search.press("Enter")
    expect(page.locator(".legend-item")).to_have_count(4)
    assert "n 2" in lines(page)[0]


def test_curves_are_drawn_over_a_metric(page, service):
    open_comparison(page, service)
    page.get_by_label("x axis").select_option("policy/entropy")
    expect(page).to_have_url(re.compile(r"x=policy(/|%2F)entropy"))
    expect(page.locator(".panel[data-metric='reward/mean'] .scatterlayer .trace").first).to_be_attached()
    xs = page.locator(".panel[data-metric='reward/mean'] .js-plotly-plot").evaluate(
        "panel => panel.data.filter(({ meta }) => meta.role === 'main').map(({ x }) => x)"
    )
    assert all(list(x) == sorted(x) for x in xs)
    page.reload()
    expect(page.get_by_label("x axis")).to_have_value("policy/entropy")
    page.get_by_label("x axis").select_option("tokens")
    expect(page).to_have_url(re.compile(r"x=tokens"))


@pytest.mark.nightly
def test_a_brush_over_an_axis_selects_runs_to_compare(page, service):
    page.goto(f"/compare?runs={','.join(service.cells)}&tab=settings")
    plot = page.locator(".relations-svg")
    plot.scroll_into_view_if_needed()
    expect(plot.locator("path.relation")).to_have_count(8)
    assert HOSTILE[:20] in plot.locator("path.relation title").last.text_content()
    axis = plot.get_by_role("group", name="optimizer.lr")
    axis.locator(".relations-grip").hover()  # once it stands still
    grip = axis.locator(".relations-grip").bounding_box()
    middle = grip["x"] + grip["width"] / 2
    page.mouse.move(middle, grip["y"] + 4)
    page.mouse.down()
    page.mouse.move(middle, grip["y"] + grip["height"] / 3, steps=4)
    page.mouse.up()
    expect(page.get_by_text("4 of 8 runs selected")).to_be_visible()
    axis.focus()
    page.keyboard.press("Escape")
    expect(plot.locator("path.is-left-out")).to_have_count(0)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.get_by_role("link", name="Compare the selected").click()
    expect(page.locator(".page-head")).to_contain_text("4 runs")
