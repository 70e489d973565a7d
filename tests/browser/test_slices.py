"""Slices of a comparison: grouped by any field, settings against results, panels in an order of one's own."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, running

CELLS = [(name, lr, size) for name in ("one", "two") for lr in (1e-3, 1e-5) for size in (4, 8)]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as service:
        service.cells = []
        for steps, (name, rate, size) in enumerate(CELLS, 2):
            knobs = {"optimizer": {"lr": rate}, "sampling": {"group_size": size}}
            service.cells.append(service.launch(name, **knobs))
            service.train(service.cells[-1], steps, end="finished")
        for run in service.cells[:2]:
            service.client.patch(f"/runs/{run}", json={"tags": ["first", "kept"]}).raise_for_status()
        named = {"name": HOSTILE[:60]}
        service.client.patch(f"/runs/{service.cells[-1]}", json=named).raise_for_status()
        yield service


def opened(page, service, query=""):
    page.goto(f"/compare?runs={','.join(service.cells)}{query}")
    expect(page.locator(".panel[data-metric='reward/mean'] .trace").first).to_be_attached()


def lines(page):
    return page.locator(".legend-item").all_inner_texts()


def test_runs_are_grouped_by_fields_that_are_found_by_typing(page, service):
    opened(page, service)
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
    opened(page, service)
    page.get_by_label("over").select_option("policy/entropy")
    expect(page).to_have_url(re.compile(r"x=policy(/|%2F)entropy"))
    expect(page.locator(".panel[data-metric='reward/mean'] .scatterlayer .trace").first).to_be_attached()
    xs = page.locator(".panel[data-metric='reward/mean'] .js-plotly-plot").evaluate(
        "panel => panel.data.filter(({ meta }) => meta.role === 'main').map(({ x }) => x)"
    )
    assert all(list(x) == sorted(x) for x in xs)
    page.reload()
    expect(page.get_by_label("over")).to_have_value("policy/entropy")
    page.get_by_role("group", name="x axis").get_by_role("button", name="tokens").click()
    expect(page.get_by_label("over")).to_have_value("")


@pytest.mark.nightly
def test_an_axis_that_is_no_metric_is_named_in_each_panel(page, service):
    page.goto(f"/compare?runs={','.join(service.cells)}&x=policy/entrpy")
    sentence = "there is no metric 'policy/entrpy'; did you mean policy/entropy"
    expect(page.get_by_text(sentence).first).to_be_visible()


@pytest.mark.nightly
def test_a_mean_is_made_anew_where_a_run_goes_to_another_group(page, service):
    moved, *remaining = service.cells[4:7]
    page.goto(f"/compare?runs={','.join([moved, *remaining])}&by=tag&band=none")
    panel = page.locator(".panel[data-metric='reward/mean']")
    expect(panel.locator(".scatterlayer .trace").first).to_be_attached()
    plot = ".panel[data-metric='reward/mean'] .js-plotly-plot"
    drawn = """([place, names]) => names === [...document.querySelectorAll(place)]
        .flatMap(({ data }) => data ?? []).filter(({ meta }) => meta.role === 'main').map(({ name }) => name)
        .sort().join()"""
    # The stream tells of a run's points with its first change: the curves are loaded again whatever changed.
    for tags, names in [(["moved"], "moved,no tag"), ([], "no tag")] * 3:
        service.client.patch(f"/runs/{moved}", json={"tags": tags}).raise_for_status()
        page.wait_for_function(drawn, arg=[plot, names], timeout=20_000)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("by", "names"),
    [("tag", ["first + kept", "no tag"]), ("verdict", None), ("config.nothing.here", ["no nothing.here"])],
)
def test_runs_without_what_they_are_grouped_by_say_so(page, service, by, names):
    opened(page, service, f"&by={by}")
    if names:
        assert [text.split("\n")[0].strip() for text in lines(page)] == names
    series = service.get("/series", runs=",".join(service.cells), metrics="reward/mean", group_by=by)[
        "series"
    ]
    assert len(series) == len(lines(page))


@pytest.mark.nightly
def test_a_brush_over_an_axis_selects_runs_to_compare(page, service):
    opened(page, service)
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


@pytest.mark.nightly
def test_a_rectangle_over_a_scatter_plot_selects_runs(page, service):
    opened(page, service, "&plot=scatter&axes=config:sampling.group_size,reward/mean")
    plot = page.locator(".relations-svg")
    plot.scroll_into_view_if_needed()
    expect(plot.locator("circle")).to_have_count(8)
    grip = plot.locator(".relations-grip").bounding_box()
    page.mouse.move(grip["x"] + 2, grip["y"] + 2)
    page.mouse.down()
    page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] - 2, steps=4)
    page.mouse.up()
    expect(page.get_by_text("4 of 8 runs selected")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(plot.locator(".is-left-out")).to_have_count(0)


def shown(page):
    return (
        page.locator(".panels")
        .first.locator(".panel")
        .evaluate_all("all => all.map((one) => one.dataset.metric)")
    )


@pytest.mark.nightly
def test_panels_are_moved_and_resized_by_keys_and_by_hand_and_the_address_keeps_it(page, service):
    opened(page, service)
    first, second, third = shown(page)[:3]
    page.get_by_label(f"Move or resize {second}").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".panel").first).to_have_attribute("data-metric", second)
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    panel = page.locator(f".panel[data-metric='{second}']")
    expect(panel).to_have_class(re.compile("is-wide-2 is-high-2"))
    page.get_by_label(f"Move or resize {third}").drag_to(page.locator(f".panel[data-metric='{second}'] h3"))
    expect(page.locator(".panel").first).to_have_attribute("data-metric", third)
    page.reload()
    expect(page.locator(f".panel[data-metric='{first}'] .trace").first).to_be_attached()
    assert shown(page)[:3] == [third, second, first]
    expect(panel).to_have_class(re.compile("is-wide-2 is-high-2"))


@pytest.mark.nightly
def test_compare_is_in_the_menu_and_uses_a_wide_screen(page, service):
    page.set_viewport_size({"width": 2560, "height": 1300})
    opened(page, service)
    menu = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Compare")
    expect(menu).to_have_attribute("aria-current", "page")
    assert page.locator(".panels").first.bounding_box()["width"] > 2400


def test_differences_are_explained_and_the_same_is_folded(page, service):
    opened(page, service)
    section = page.locator("section", has=page.get_by_role("heading", name="Config differences"))
    expect(section.get_by_text("in effect")).to_be_visible()
    expect(section.locator("summary")).to_contain_text("with the same value in all")
    expect(section.locator("details table")).not_to_be_visible()
    expect(section.get_by_role("button", name="Copy as Markdown")).to_be_visible()
