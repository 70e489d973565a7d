"""Charts as files, and what a panel leaves out: legends, notes, ranges of y, settings of single panels."""

import csv
import json
import math
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from PIL import Image, ImageColor
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, opened, running

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as service:
        for name in ("=1+1", HOSTILE[:60]):
            run = service.launch("files")
            service.client.patch(f"/runs/{run}", json={"name": name}).raise_for_status()
            service.train(run, 6, end="finished")
            service.trained = f"{service.trained},{run}".strip(",")
        yield service


def saved(page, panel, kind):
    panel.hover()
    panel.get_by_role("button", name="Download").click()
    with page.expect_download(timeout=60_000) as download:
        panel.get_by_role("button", name=kind).click()
    return download.value.path()


def test_files_of_a_panel_carry_all_that_is_needed_to_read_them(page, service):
    page.goto(f"/compare?runs={service.trained}&by=run&at=4&smoothing=0.6")
    panel = page.locator(".panel[data-metric='policy/entropy']").first
    expect(panel.locator(".values tbody tr, .trace").first).to_be_attached()
    expect(panel.locator(".panel-foot")).to_contain_text("2 runs")
    svg = saved(page, panel, "Image (SVG)").read_text()
    root = ET.fromstring(svg)  # noqa: S314 - our own file: it must be well-formed
    text = " ".join(root.itertext())
    for phrase in ("policy/entropy (nats)", "step 4", "smoothed 0.6", "2 runs", "/compare?runs=", "=1+1"):
        assert phrase in text
    assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {"script", "foreignObject", "a"}
    assert not any(name.lower().startswith("on") for element in root.iter() for name in element.attrib)
    saved_figure = json.loads(saved(page, panel, "Figure (Plotly JSON)").read_text())
    assert saved_figure["layout"]["title"]["text"] == "policy/entropy"
    assert sum(trace["showlegend"] for trace in saved_figure["data"]) == 2
    rows = list(csv.reader(saved(page, panel, "Curves (CSV)").read_text().splitlines()))
    assert {row[0][:2] for row in rows[1:]} == {"'=", "<i"}
    assert all(math.isfinite(float(row[5])) for row in rows[1:])
    image = Image.open(saved(page, panel, "Image (PNG)")).convert("RGB")
    drawn = {colour for count, colour in image.getcolors(image.width * image.height) or [] if count > 50}
    for trace in saved_figure["data"]:
        if trace["showlegend"]:
            assert ImageColor.getrgb(trace["line"]["color"]) in drawn


def test_a_link_opens_with_the_same_screen_in_a_fresh_profile(page, browser, service):
    tune = quote('{"reward/mean":{"y":[0.1,0.5]}}')
    link = f"/compare?runs={service.trained}&by=run&values=1&at=4&smoothing=0.6"
    link += f"&zoom=1,5&tune={tune}"

    def screen(where):
        where.goto(link)
        panels = where.locator(".panel")
        expect(panels.first.locator(".trace").first).to_be_attached()
        expect(where.locator(".panel .values tbody tr").first).to_be_visible()
        where.wait_for_function("() => !document.querySelector('.is-old, .panel-loading')")
        return where.evaluate("""() => [...document.querySelectorAll('.panel')].map((panel) => ({
            metric: panel.dataset.metric, foot: panel.querySelector('.panel-foot').textContent,
            values: panel.querySelector('.values')?.textContent,
            lines: [...panel.querySelectorAll('.trace path')]
                .map((path) => [path.style.stroke, path.getAttribute('d')]),
            ticks: [...panel.querySelectorAll('.ytick')].map((tick) => tick.textContent) }))""")

    seen = screen(page)
    assert len(seen) > 1
    assert any(panel["lines"] for panel in seen)
    context = opened(browser, service, width=1280)
    assert screen(context.new_page()) == seen
    context.close()


def test_the_range_of_y_is_set_by_hand_and_by_the_wheel(page, service):
    page.goto(f"/compare?runs={service.trained}&by=run")
    panel = page.locator(".panel[data-metric='reward/mean']").first
    expect(panel.locator(".trace").first).to_be_attached()
    panel.hover()
    panel.get_by_role("button", name="Settings of this chart").click()
    panel.get_by_label("y from").fill("0.25")
    panel.get_by_label("to", exact=True).fill("0.5")
    panel.get_by_role("button", name="Set", exact=True).click()
    expect(panel.locator(".panel-foot")).to_contain_text("points outside the y range")
    assert "tune=" in page.url
    page.keyboard.press("Escape")
    before = page.url
    panel.locator(".nsewdrag").first.hover()
    page.keyboard.down("Alt")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Alt")
    page.wait_for_url(lambda url: url != before)
    foot = page.locator(".panel[data-metric='policy/entropy'] .panel-foot").first
    expect(foot).not_to_contain_text("outside")
