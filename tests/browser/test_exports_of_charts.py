"""Tests of charts that are saved as files, with their legends and notes."""

import csv
import json
import math
import re
from xml.etree import ElementTree as ET

import pytest
from PIL import Image, ImageColor
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, make_metrics, running_service

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        for name in ("=1+1", HOSTILE[:60]):
            run = service.launch("files")
            service.client.patch(f"/runs/{run}", json={"name": name}).raise_for_status()
            service.train(run, 6, end="finished")
            service.trained = f"{service.trained},{run}".strip(",")
        yield service


def open_charts(page, service):
    page.goto(f"/compare?runs={service.trained}&by=run&at=4&smoothing=0.6")
    panel = page.locator(".panel[data-metric='policy/entropy']").first
    expect(panel.locator(".values tbody tr, .trace").first).to_be_attached()
    return panel


def download_file(page, button):
    with page.expect_download(timeout=60_000) as download:
        button.click()
    return download.value.path()


def download_data(page, panel, kind):
    panel.hover()
    panel.get_by_role("button", name="Download").click()
    return download_file(page, panel.get_by_role("button", name=kind))


def download_figure(page, kind):
    """Save the figure in the dialog at its current size."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=kind, exact=True).click()
    expect(dialog.locator("img")).to_be_visible()
    return download_file(page, dialog.get_by_role("button", name=f"Save {kind}"))


def test_an_image_is_drawn_for_paper_in_three_formats(page, service):
    panel = open_charts(page, service)
    panel.hover()
    panel.get_by_role("button", name="Download").click()
    panel.get_by_role("button", name="Figure").click()
    svg = download_figure(page, "SVG").read_text()
    root = ET.fromstring(svg)  # noqa: S314 - our own file: it must be well-formed
    assert root.attrib["width"] == "84mm"
    text = " ".join(root.itertext())
    for phrase in ("policy/entropy (nats)", "step", "=1+1"):
        assert phrase in text
    assert service.base not in text
    assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {"script", "foreignObject", "a"}
    assert not any(name.lower().startswith("on") for element in root.iter() for name in element.attrib)
    image = Image.open(download_figure(page, "PNG")).convert("RGB")
    assert image.width == round(84 / 25.4 * 300)
    assert image.getpixel((0, 0)) == (255, 255, 255)
    drawn_colours = {
        colour for count, colour in image.getcolors(image.width * image.height) or [] if count > 50
    }
    strokes = {element.attrib["stroke"] for element in root if element.tag.endswith("line")}
    assert strokes
    assert {ImageColor.getrgb(stroke) for stroke in strokes} <= drawn_colours
    pdf = download_figure(page, "PDF").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert re.search(rb"/MediaBox \[0 0 238\.1\d* ", pdf)
    assert b"/JavaScript" not in pdf
    rows = list(
        csv.reader(
            download_file(page, page.get_by_role("button", name="Data (CSV)")).read_text().splitlines()
        )
    )
    assert {row[2] for row in rows[1:]} == {"policy/entropy"}


def test_all_charts_of_a_page_become_one_figure_after_two_clicks(page, service):
    open_charts(page, service)
    page.get_by_role("button", name="Figure", exact=True).click()
    root = ET.fromstring(download_figure(page, "SVG").read_text())  # noqa: S314 - our own file
    assert root.attrib["width"] == "174mm"
    assert len([element for element in root if element.tag.endswith("svg")]) == len(make_metrics(1))


def test_files_of_a_panel_contain_everything_needed_to_read_them(page, service):
    panel = open_charts(page, service)
    saved_figure = json.loads(download_data(page, panel, "Data (Plotly JSON)").read_text())
    assert saved_figure["layout"]["title"]["text"] == "policy/entropy"
    assert sum(trace["showlegend"] for trace in saved_figure["data"]) == 2
    rows = list(csv.reader(download_data(page, panel, "Curves (CSV)").read_text().splitlines()))
    assert {row[0][:2] for row in rows[1:]} == {"'=", "<i"}
    assert all(math.isfinite(float(row[5])) for row in rows[1:])
