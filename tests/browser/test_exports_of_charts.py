"""Charts as files, with their legends and notes."""

import csv
import json
import math
from xml.etree import ElementTree as ET

import pytest
from PIL import Image, ImageColor
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, running

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
