"""Pictures of a diagnosis with its trial, for the documentation."""

from pathlib import Path

from benchmarks.common.browser import chromium, fresh_page
from benchmarks.common.pictures import shrink
from benchmarks.common.service import Service

HERE = Path(__file__).parent
SCHEMES = ("light", "dark")


def take_pictures(service: Service, run_id: str) -> None:
    """Write `light.png` and `dark.png`: the page of a run whose trial has been judged."""
    with chromium() as browser:
        for scheme in SCHEMES:
            page = fresh_page(browser, service)
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": 1200, "height": 1100})
            page.goto(f"{service.url}/run/{run_id}")
            page.get_by_text("Fisher's exact test").first.wait_for()
            page.wait_for_timeout(2000)  # charts are drawn when they come into view
            path = HERE / f"{scheme}.png"
            page.screenshot(path=path)
            shrink(path)
            page.context.close()
