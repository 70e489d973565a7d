"""Thirty panels of fifty curves on Compare, in Chromium: until all are drawn, and until all show a change."""

import os
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common.browser import chromium
from benchmarks.common.service import Service

METRICS = [f"{section}/{name}" for section in ("reward", "policy", "optim") for name in "abcdefghij"]
"""Of thirty panels."""
SCREEN = {"width": 3840, "height": 2160}
"""All thirty panels are on the screen."""

WATCH = """
window.painted = {}; window.stalls = [];
new PerformanceObserver((list) => stalls.push(...list.getEntries().map(({duration}) => duration)))
  .observe({type: 'longtask', buffered: true});
new MutationObserver((records) => {
  for (const {target} of records)
    if (target.matches('.painted-curves:not(.is-lit-curve)'))
      painted[target.closest('.panel').dataset.metric] = performance.now();
}).observe(document, {subtree: true, attributes: true, attributeFilter: ['width']});
"""
"""A canvas gets its width whenever it is painted."""
DRAWN = "([count, since]) => Object.values(painted).filter((at) => at > since).length >= count"
LAST = "() => Math.max(...Object.values(painted))"


@dataclass(slots=True)
class Drawn:
    """Seconds of each visit."""

    drawn: list[float] = field(default_factory=list)
    """From the navigation until the last panel shows its curves."""
    busy: list[float] = field(default_factory=list)
    """Processor time of the page's thread until then, loading of the page included."""
    updated: dict[str, list[float]] = field(default_factory=dict)
    """From a change until the last panel shows it."""
    updating: dict[str, list[float]] = field(default_factory=dict)
    """Processor time of the page's thread for it."""
    stall: list[float] = field(default_factory=list)
    """The longest time for which the page did not react."""
    load: float = 0.0


def visit_pages(service: Service, runs: list[str], *, visits: int) -> dict[str, Drawn]:
    """Visits with an empty cache, and visits after them."""
    found = {"empty cache": Drawn(), "visited before": Drawn()}
    headers = {"Authorization": f"Bearer {service.token}"}
    address = f"{service.url}/compare?runs={','.join(runs)}&by=run&metrics=reward,policy,optim"
    with chromium() as browser:
        for _ in range(visits):
            context = browser.new_context(viewport=SCREEN, extra_http_headers=headers)
            for drawn in found.values():
                page = context.new_page()
                _visit(page, context.new_cdp_session(page), address, drawn)
                page.close()
            context.close()
    for drawn in found.values():
        drawn.load = os.getloadavg()[0]
    return found


def _visit(page: Any, cdp: Any, address: str, drawn: Drawn) -> None:
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.add_init_script(WATCH)
    page.goto(address, wait_until="commit")
    drawn.drawn.append(_settled(page, 0) / 1000)
    drawn.busy.append(_busy(cdp))
    drawn.stall.append(page.evaluate("() => Math.max(0, ...stalls)") / 1000)
    log = page.get_by_role("button", name="log y").first.element_handle()
    smoothing = page.get_by_label("smoothing").first.element_handle()
    changes = {"log y": log.click, "smoothing": lambda: smoothing.select_option("0.9")}
    for name, change in changes.items():
        busy = _busy(cdp)
        since = page.evaluate("() => performance.now()")
        change()
        drawn.updated.setdefault(name, []).append((_settled(page, since) - since) / 1000)
        drawn.updating.setdefault(name, []).append(_busy(cdp) - busy)


def _settled(page: Any, since: float) -> float:
    """When the last panel was painted, once all are and none is painted again for a second."""
    page.wait_for_function(DRAWN, arg=[len(METRICS), since], timeout=120_000)
    last = 0.0
    while (newest := float(page.evaluate(LAST))) > last:
        last = newest
        time.sleep(1.0)
    return last


def _busy(cdp: Any) -> float:
    metrics = {each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])
