"""Reading at x: what every line had recorded at one position, as a table, as text and as a file."""

import csv

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, metrics_of, running

POINTED_AT = """async (crosshair, seconds) => {
  const { figureOf } = await import('/static/src/charts/figure.js');
  const { cursor, free } = await import('/static/src/charts/cursor.js');
  const { readAt } = await import('/static/src/lib/reading.js');
  const item = { run: 'r', name: 'r', x: seconds, steps: seconds.map((_, i) => i), values: seconds,
    non_finite: [], raw_points: seconds.length };
  const look = { colour: '#112233', dash: 'solid' };
  const view = { metric: 'm', xKind: 'wall', logX: false, logY: false, zoom: null, theme: {} };
  const figure = figureOf([{ series: item, name: 'r', look }], view);
  const [data] = figure.data;
  const read = [];
  for (const x of data.x) {
    for (const how of [crosshair.follow, crosshair.pinUnder]) {
      how({ drawn: true, metric: 'm', figure, hovered: { x, data } }, {});
      read.push([readAt(item, cursor.value.x).value, cursor.value.x]);
      free();
    }
  }
  return [figure.unit.unit, read];
}"""


@pytest.mark.parametrize(("unit", "longest"), [("s", 299), ("min", 10_000), ("h", 90_000)])
def test_a_point_that_is_pointed_at_is_the_one_that_is_read(in_browser, unit, longest):
    seconds = [longest * (i + 1) / 777 for i in range(777)]
    shown_unit, read = in_browser("charts/crosshair.js", POINTED_AT, seconds)
    assert shown_unit == unit
    assert read == [[x, x] for x in seconds for _ in range(2)]


ARROWS = """async (crosshair, seconds) => {
  const { figureOf } = await import('/static/src/charts/figure.js');
  const { cursor, free, pin } = await import('/static/src/charts/cursor.js');
  const { panels } = await import('/static/src/charts/mounted.js');
  const item = { run: 'r', name: 'r', x: seconds, steps: seconds, values: seconds,
    non_finite: [], raw_points: seconds.length };
  const look = { colour: '#112233', dash: 'solid' };
  const view = { metric: 'm', xKind: 'wall', logX: false, logY: false, zoom: null, theme: {} };
  const figure = figureOf([{ series: item, name: 'r', look }], view);
  const element = document.createElement('div');
  element._fullLayout = { xaxis: { d2p: () => -1 }, yaxis: {} };
  panels.set(element, { drawn: true, figure, metric: 'm', element, line: document.createElement('div') });
  pin(0, 'm');
  const way = [...seconds, ...seconds.slice(1)].map((_, i) => {
    crosshair.moveCursor(i < seconds.length ? 1 : -1);
    return cursor.value.x;
  });
  free();
  panels.clear();
  return way;
}"""


@pytest.mark.nightly
def test_the_arrow_keys_go_from_point_to_point_in_hours(in_browser):
    seconds = [90_000 * (i + 1) / 777 for i in range(777)]
    assert in_browser("charts/crosshair.js", ARROWS, seconds) == [*seconds, *reversed(seconds[:-1])]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("one")
        service.train(service.trained, 6, end="finished")
        service.failed = service.launch(HOSTILE[:60])
        service.train(service.failed, 3, end="failed")
        yield service


def place_of(panel, share):
    """Where to point at, in the empty top of a panel's plot."""
    box = panel.locator(".nsewdrag").first.bounding_box()
    return box["x"] + box["width"] * share, box["y"] + 3


def opened(page, service, query=""):
    page.goto(f"/compare?runs={service.trained},{service.failed}&by=run{query}")
    panel = page.locator(".panel[data-metric='reward/mean']").first
    expect(panel.locator(".trace").first).to_be_attached()
    expect(page.locator(".panel[data-metric='eval/accuracy'] .trace").first).to_be_attached()
    return panel


def test_the_cursor_is_pinned_moved_and_freed_and_is_in_the_address(page, service):
    panel = opened(page, service)
    page.mouse.move(*place_of(panel, 0.5))
    lines = page.locator(".crosshair:not([hidden])")
    panels = len(metrics_of(1))
    expect(lines).to_have_count(panels)
    page.mouse.click(*place_of(panel, 0.5))
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


def test_the_table_is_the_legend_the_copy_and_the_file(page, service):
    panel = opened(page, service, f"&values=1&at=2&baseline={service.trained}")
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


def test_a_deleted_baseline_is_told(page, service):
    panel = opened(page, service, "&values=1&baseline=gone")
    expect(panel.locator(".values")).to_contain_text("the baseline gone is not among these lines")
    expect(
        page.get_by_role("note").filter(has_text="The baseline gone is not among these runs")
    ).to_be_visible()


def test_a_click_on_a_point_still_opens_its_completions(page, service):
    panel = opened(page, service)
    spot = panel.locator(".js-plotly-plot").evaluate(
        """(plot) => { const { xaxis, yaxis } = plot._fullLayout; const box = plot.getBoundingClientRect();
        return [box.left + xaxis._offset + xaxis.d2p(4), box.top + yaxis._offset + yaxis.d2p(0.4)]; }"""
    )
    page.mouse.move(spot[0] - 3, spot[1])
    page.mouse.move(*spot)
    expect(panel.locator(".hovertext").first).to_be_attached()
    page.mouse.click(*spot)
    page.wait_for_url(f"**/rollouts?run={service.trained}&step=4")
