"""The picture that the dashboard draws of a claim's runs, where Chromium and playwright are installed."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from benchmarks.service import Service

HERE = Path(__file__).parent
PICTURED = {"a", "d", "e", "f"}
"""Claims of which a picture is kept."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def take_picture(service: Service, key: str, runs: Iterable[str]) -> None:
    """Keep Compare with these runs as a person sees it; nothing where there is no browser."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if key not in PICTURED or browser is None:
        return
    try:
        from playwright.sync_api import TimeoutError as NotDrawn
        from playwright.sync_api import sync_playwright
    except ImportError:
        return
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(
            viewport={"width": 1440, "height": 900},
            extra_http_headers={"Authorization": f"Bearer {service.token}"},
        )
        page.goto(f"{service.url}/compare?runs={','.join(runs)}")
        drawn = page.locator("[data-metric='reward/mean'] .js-plotly-plot .trace").first
        try:
            drawn.wait_for(timeout=60_000)
            page.wait_for_timeout(4_000)
            page.screenshot(path=HERE / f"{key}.png")
        except NotDrawn:
            print(f"({key}) no picture: no curve was drawn within a minute", flush=True)
        chromium.close()
