"""Tests of reading all lines at one position, as a table, as text and as a file."""

import csv

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, make_metrics, running_service


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("one")
        service.train(service.trained, 6, end="finished")
        service.failed = service.launch(HOSTILE[:60])
        service.train(service.failed, 3, end="failed")
        yield service


def pointer_position(panel, share):
    """Return a pointer position in the empty top of a panel's plot."""
    box = panel.locator(".nsewdrag").first.bounding_box()
    return box["x"] + box["width"] * share, box["y"] + 3


def open_comparison(page, service, query=""):
    page.goto(f"/compare?runs={service.trained},{service.failed}&by=run{query}")
    panel = page.locator(".panel[data-metric='reward/mean']").first
    expect(panel.locator(".trace").first).to_be_attached()
    expect(page.locator(".panel[data-metric='eval/accuracy'] .trace").first).to_be_attached()
    return panel


def test_the_cursor_can_be_pinned_moved_and_released_and_is_in_the_address(page, service):
    panel = open_comparison(page, service)
    page.mouse.move(*pointer_position(panel, 0.5))
    lines = page.locator(".crosshair:not([hidden])")
    panels = len(make_metrics(1))
    expect(lines).to_have_count(panels)
    page.mouse.click(*pointer_position(panel, 0.5))
    table = panel.locator(".values")
    expect(table).to_contain_text("step 5 pinned")
    expect(table.locator("tbody tr").first).to_contain_text("0.500")
    expect(table.locator("tbody tr").last.locator(".is-older")).to_have_text("3")
    page.keyboard.press("ArrowRight")
    expect(table).to_contain_text("step 6 pinned")
    page.wait_for_url("**at=6*")
    page.reload()
    expect(lines).to_have_count(panels)
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**at=5*")
    page.mouse.move(2, 2)
    page.keyboard.press("Escape")
    expect(lines).to_have_count(0)
    page.wait_for_url(lambda url: "at=" not in url)


def test_the_table_becomes_the_legend_the_copied_text_and_the_file(page, service):
    panel = open_comparison(page, service, f"&values=1&at=2&baseline={service.trained}")
    table = panel.locator(".values")
    expect(table).to_contain_text("step 2 pinned")
    expect(table.locator("tbody tr")).to_have_count(2)
    with page.expect_download() as download:
        table.get_by_role("button", name="CSV").click()
    rows = list(csv.reader(download.value.path().read_text().splitlines()))
    assert rows[0][0] == "line"
    assert rows[0][2].startswith("difference to ")
    assert {row[1] for row in rows[1:]} == {"0.2"}
    nan = page.locator(".panel[data-metric='optim/grad_norm'] .values")
    expect(nan.locator("tbody tr").first).to_contain_text("NaN")


def test_a_click_on_a_point_still_opens_its_completions(page, service):
    panel = open_comparison(page, service)
    point = panel.locator(".js-plotly-plot").evaluate(
        """(plot) => { const { xaxis, yaxis } = plot._fullLayout; const box = plot.getBoundingClientRect();
        return [box.left + xaxis._offset + xaxis.d2p(4), box.top + yaxis._offset + yaxis.d2p(0.4)]; }"""
    )
    page.mouse.move(point[0] - 3, point[1])
    page.mouse.move(*point)
    expect(panel.locator(".hovertext").first).to_be_attached()
    page.mouse.click(*point)
    page.wait_for_url(f"**/run/{service.trained}?tab=rollouts&step=4")
