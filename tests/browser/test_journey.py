"""Test a user's way through the application: open the link, launch, watch, compare and read.

`make screenshot` follows the same steps up to the experiment with longer runs, and saves the picture for
the README."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS
from tests.browser.pictures import shrink
from tests.system.lab import LauncherProgram

SCREENSHOT_PATH = os.environ.get("GRPOLAB_SCREENSHOT", "")
STEP_COUNT = 60 if SCREENSHOT_PATH else 4
SEED_LIST = "0,1" if SCREENSHOT_PATH else "0"
PATIENCE_MS = 900_000 if SCREENSHOT_PATH else 300_000


@pytest.fixture(scope="module")
def running_launcher(tmp_path_factory):
    program = LauncherProgram(tmp_path_factory.mktemp("lab"))
    yield program.wait_until_up()
    program.kill_all()


@pytest.fixture
def page(running_launcher, chromium):
    complaints = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(120_000)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        browser.close()
    assert complaints == []


POINT_POSITION = """(plot, step) => {
    const trace = plot.data.find((one) => one.x?.includes(step));
    const at = trace.x.indexOf(step);
    const { xaxis, yaxis } = plot._fullLayout;
    const { left, top } = plot.getBoundingClientRect();
    return [left + xaxis._offset + xaxis.d2p(trace.x[at]), top + yaxis._offset + yaxis.d2p(trace.y[at])];
}"""


def position_of_point(page: Page, metric: str, step: int) -> tuple[float, float]:
    """Return the position on the page of a step's point in the first curve of a panel."""
    left_pixels, top_pixels = page.locator(f"[data-metric='{metric}'] .js-plotly-plot").evaluate(
        POINT_POSITION, step
    )
    return left_pixels, top_pixels


@pytest.mark.nightly
def test_launch_watch_compare_and_read(page, running_launcher):
    page.goto(re.search(r"http://\S+/\?token=\S+", running_launcher.output_text()).group())
    expect(page).to_have_url(re.compile(r"/runs$"))
    assert "token" not in page.url

    page.get_by_role("link", name="Launch").first.click()
    page.get_by_role("button", name="DAPO", exact=True).click()
    page.get_by_role("textbox", name="Seeds").fill(SEED_LIST)
    page.locator("[data-path='steps']").first.locator("input").fill(str(STEP_COUNT))
    page.get_by_role("button", name=re.compile(r"^Launch \d runs")).click()

    expect(page).to_have_url(re.compile(r"/experiment/"))
    reward = page.locator("[data-metric='reward/mean']")
    expect(reward.locator(".js-plotly-plot .trace").first).to_be_visible(timeout=PATIENCE_MS)
    experiment = re.search(r"experiment/(\w+)", page.url).group(1)
    for run in running_launcher.client.get(f"/runs?experiment={experiment}")["items"]:
        running_launcher.client.wait_for_status(run["id"], "finished", seconds=PATIENCE_MS / 1000)
    for variant in ("grpo", "dapo"):
        expect(page.get_by_text(variant).first).to_be_visible()
    if SCREENSHOT_PATH:
        page.wait_for_timeout(4_000)
        page.screenshot(path=SCREENSHOT_PATH)
        shrink(Path(SCREENSHOT_PATH))
        return
    page.get_by_role("tab", name="Settings").click()
    differences = page.locator("section", has=page.get_by_role("heading", name="Config differences"))
    expect(differences.get_by_text("surrogate").first).to_be_visible()

    run = running_launcher.client.get(f"/runs?experiment={experiment}&variant=grpo")["items"][0]
    page.goto(f"{running_launcher.client.base}/run/{run['id']}?tab=charts")
    expect(reward.locator(".js-plotly-plot .trace").first).to_be_visible()
    point = position_of_point(page, "reward/mean", 2)
    page.mouse.click(*point)

    expect(page).to_have_url(re.compile(rf"/run/{run['id']}.*step=2"))
    group = running_launcher.client.get(f"/rollouts?run={run['id']}&step=2")["items"][0]
    expect(page.get_by_text(group["prompt"], exact=True).first).to_be_visible()
    cards = page.locator("article.rollout")
    expect(cards).to_have_count(8)
    card_text = cards.first.inner_text()
    assert group["completions"][0]["text"][:20] in card_text.replace("\n", "")
