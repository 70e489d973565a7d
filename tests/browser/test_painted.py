"""Tests of panels with more lines than SVG draws quickly, which are painted on a canvas."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, running_service

RUN_COUNT = 14
"""More lines than Plotly draws."""
COUNT_PIXELS = """(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
  .filter((value, at) => at % 4 === 3 && value > 0).length"""
POINT_POSITION = """(plot) => {
  const { xaxis, yaxis } = plot._fullLayout;
  const box = plot.getBoundingClientRect();
  return [box.left + xaxis._offset + xaxis.d2p(2), box.top + yaxis._offset + yaxis.d2p(0.2)]; }"""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.cells = [service.launch(f"experiment {number}") for number in range(RUN_COUNT)]
        for run in service.cells:
            service.train(run, 3, end="finished")
        name_change = {"name": HOSTILE[:60]}
        service.client.patch(f"/runs/{service.cells[0]}", json=name_change).raise_for_status()
        yield service


@pytest.fixture
def panel(page, service):
    page.goto(f"/compare?runs={','.join(service.cells)}&by=run")
    panel = page.locator(".panel[data-metric='reward/mean']").first
    expect(panel.locator(".painted-curves").first).to_be_attached()
    return panel


def test_many_lines_are_painted_within_the_axes_of_plotly(panel):
    curves = panel.locator(".painted-curves:not(.is-lit-curve)")
    assert curves.evaluate(COUNT_PIXELS) > 50
    assert (
        panel.locator(".scatterlayer .trace path.js-line").count() < RUN_COUNT / 2
    )  # events, and the corners
    low, high = panel.locator(".js-plotly-plot").evaluate("(plot) => plot._fullLayout.yaxis.range")
    assert low <= 0
    assert high >= 0.3
    assert panel.locator(".ytick").count() > 1


def test_a_point_has_a_label_and_opens_its_completions(panel, page, service):
    position = panel.locator(".js-plotly-plot").evaluate(POINT_POSITION)
    page.mouse.move(position[0] - 3, position[1])
    page.mouse.move(*position)
    label = panel.locator(".point-label")
    expect(panel.locator(".values.is-floating")).to_contain_text("step 2")
    expect(label).to_be_hidden()  # one of the two is enough
    expect(label).to_contain_text("step 2")
    assert "<img" in label.inner_text()  # the first of overlapping lines, with its name as text
    page.mouse.click(*position)
    page.wait_for_url(re.compile(rf"/run/{service.cells[0]}\?tab=rollouts&step=2"))
