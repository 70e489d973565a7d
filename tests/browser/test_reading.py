"""Reading at x: what every line had recorded at one position, as a table, as text and as a file."""

import csv
import io
import math

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, metrics_of, running

READING = "lib/reading.js"
LOOK = {"colour": "#112233", "dash": "solid"}


def series(values, *, steps=None, run="r", **changes):
    """A run's series; values that are not finite are spelled and stand apart, as in the API."""
    steps = list(steps or range(len(values)))
    points = list(zip(steps, values, strict=True))
    finite = [(step, value) for step, value in points if isinstance(value, int | float)]
    strange = [{"step": step, "x": step, "value": value} for step, value in points if isinstance(value, str)]
    kept = [step for step, _ in finite]
    return {
        "run": run, "name": run, "metric": "m", "x": kept, "steps": kept,
        "values": [value for _, value in finite], "non_finite": strange, "raw_points": len(points), **changes,
    }  # fmt: skip


def line(item, **changes):
    return {"series": item, "name": item["name"], "look": LOOK, "role": "main", **changes}


@pytest.fixture
def read(in_browser):
    def at(lines, x, baseline=None):
        call = "(r, [lines, x, base]) => r.readLines(lines, x ?? Infinity, base)"
        return in_browser(READING, call, [lines, x, baseline])

    return at


def test_a_value_is_the_recorded_one_at_the_nearest_step_at_or_below(read):
    [row] = read([line(series([1.0, 2.0, 4.0], steps=[0, 5, 10]))], 9)["rows"]
    assert (row["recorded"]["value"], row["recorded"]["step"], row["isOlder"]) == (2.0, 5, True)
    [row] = read([line(series([1.0, 2.0, 4.0], steps=[0, 5, 10]))], 10)["rows"]
    assert (row["recorded"]["value"], row["isOlder"]) == (4.0, False)


def test_lines_are_sorted_by_value_and_those_without_one_come_last(read):
    lines = [
        line(series([0.1], run="low")),
        line(series([0.0, "NaN"], run="nan")),
        line(series([5.0], steps=[7], run="later")),
        line(series([0.9], run="high")),
        line(series([0.0, "Infinity"], run="up")),
    ]
    rows = read(lines, 1)["rows"]
    assert [row["name"] for row in rows] == ["up", "high", "low", "nan", "later"]
    assert rows[-1]["recorded"] is None


def test_a_line_of_nothing_says_that_there_is_no_value_yet(in_browser):
    call = """(r, lines) => r.tableOf(r.readLines(lines, 3),
        { metric: 'm', unit: null, xKind: 'step', smoothing: 0 })"""
    table = in_browser(READING, call, [line(series([]))])
    assert table["rows"] == [["r", "", "", "", "step 3", "no value yet"]]


def test_the_difference_is_that_of_recorded_values(read):
    lines = [line(series([3.0], run="a")), line(series([1.0], run="b")), line(series(["NaN"], run="c"))]
    reading = read(lines, 0, "b")
    assert [(row["name"], row["delta"]) for row in reading["rows"]] == [("a", 2.0), ("b", None), ("c", None)]
    assert reading["baseline"] == "b"


def test_a_baseline_that_is_gone_is_told_and_there_are_no_differences(read):
    reading = read([line(series([3.0], run="a")), line(series([1.0], run="b"))], 0, "deleted")
    assert reading["isBaselineMissing"]
    assert [row["delta"] for row in reading["rows"]] == [None, None]


def test_smoothing_changes_no_recorded_value_and_is_marked(read):
    smooth, raw = series([1.0, 1.5, 1.7]), series([1.0, 2.0, 2.0])
    reading = read([line(smooth), line(raw, role="raw")], 2)
    [row] = reading["rows"]
    assert (row["recorded"]["value"], row["smoothed"]["value"], reading["isSmoothed"]) == (2.0, 1.7, True)


def test_a_mean_says_how_many_of_its_runs_count(in_browser):
    mean = series([1.0, 2.0], run=None, group="g", runs=["a", "b", "c"], n=[3, 2], gaps=[])
    count = in_browser(READING, "(r, lines) => r.countText(r.readLines(lines, 1).rows[0])", [line(mean)])
    assert count == "2 of 3"


def test_without_a_cursor_the_last_values_are_read(read):
    [row] = read([line(series([1.0, "NaN", 3.0, "-Infinity"]))], None)["rows"]
    assert (row["recorded"]["value"], row["recorded"]["step"], row["isOlder"]) == ("-Infinity", 3, False)


def newest(points, x):
    """The rule in plain words: of all points at or before x the last."""
    before = [point for point in points if point[0] <= x]
    return before[-1] if before else None


RANDOM = """(r, seed) => {
  let state = seed;
  const next = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const cases = [];
  for (let k = 0; k < 200; k += 1) {
    let step = Math.floor(next() * 5);
    const points = [];
    for (let i = Math.floor(next() * 12); i > 0; i -= 1) {
      points.push([step, next() < .25 ? ['NaN', 'Infinity', '-Infinity'][Math.floor(next() * 3)] : next()]);
      step += 1 + Math.floor(next() * 4);
    }
    const finite = points.filter(([, v]) => typeof v === 'number');
    const steps = finite.map(([s]) => s);
    const series = { x: steps, steps, values: finite.map(([, v]) => v),
      non_finite: points.filter(([, v]) => typeof v === 'string')
        .map(([step, value]) => ({ step, x: step, value })) };
    const x = next() * 30 - 2;
    const found = r.readAt(series, x);
    cases.push({ points, x, found: found && [found.step, found.value] });
  }
  return cases;
}"""


@pytest.mark.parametrize("seed", [7, 4711])
def test_any_reading_is_the_newest_point_before(in_browser, seed):
    for case in in_browser(READING, RANDOM, seed):
        assert case["found"] == newest(case["points"], case["x"]), case


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
    seconds = [longest * (place + 1) / 777 for place in range(777)]
    found, read = in_browser("charts/crosshair.js", POINTED_AT, seconds)
    assert found == unit
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


def test_the_arrow_keys_go_from_point_to_point_in_hours(in_browser):
    seconds = [90_000 * (place + 1) / 777 for place in range(777)]
    assert in_browser("charts/crosshair.js", ARROWS, seconds) == [*seconds, *reversed(seconds[:-1])]


@pytest.mark.parametrize("name", ["=1+1", "+cmd|' /C calc'!A0", "@x", "-2+3", 'a,"b"\n=c', HOSTILE])
def test_a_hostile_name_is_no_formula_in_the_table(in_browser, name):
    call = """(r, lines) => {
        const table = r.tableOf(r.readLines(lines, 0, lines[0].name),
            { metric: 'm', unit: null, xKind: 'step', smoothing: 0 });
        return [r.tableAsCsv(table), r.tableAsText(table), r.curvesAsCsv(lines, 'm', 'step')]; }"""
    files = in_browser(READING, call, [line(series([1.0], run=name))])
    for text, sign in zip(files, ",\t,", strict=True):
        cells = [cell for row in csv.reader(io.StringIO(text), delimiter=sign) for cell in row]
        assert any(name in cell for cell in cells)
        assert not any(cell[:1] in "=+@-" for cell in cells if cell and not is_number(cell))


def is_number(text):
    try:
        return math.isfinite(float(text)) or True
    except ValueError:
        return False


def test_five_hundred_lines_of_a_hundred_thousand_points_are_read_at_once(in_browser):
    call = """(r) => {
        const x = Array.from({ length: 100000 }, (_, i) => i);
        const lines = Array.from({ length: 500 }, (_, i) => ({ series: { run: `r${i}`, x, steps: x, values: x,
            non_finite: [], raw_points: 100000 }, name: `r${i}`, role: 'main' }));
        const start = performance.now();
        const { rows } = r.readLines(lines, 77777.5, 'r3');
        return [rows.length, rows[0].recorded.value, performance.now() - start]; }"""
    count, value, milliseconds = in_browser(READING, call)
    assert (count, value) == (500, 77777)
    assert milliseconds < 100


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


def opened(page, service, more=""):
    page.goto(f"/compare?runs={service.trained},{service.failed}&by=run{more}")
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
