"""Checks of a page's accessibility with axe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Page

AXE_SOURCE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()
WITH_TARGET_SIZE = {"rules": {"target-size": {"enabled": True}}}
"""Options of axe for a page that is not scrolled, since a sticky header may cover a part of a button."""


def find_barriers(
    page: Page, selector: str = "html", options: Mapping[str, Any] = WITH_TARGET_SIZE
) -> list[tuple[str, list[str]]]:
    """Return each rule of axe that a part of the page violates, with the HTML of its elements."""
    # axe must not make a policy of trusted types, which the page forbids
    page.evaluate(f"() => {{ const trustedTypes = undefined; {AXE_SOURCE} }}")
    violations = page.evaluate(
        "async ([selector, options]) => (await axe.run(selector, options)).violations", [selector, options]
    )
    return [(item["id"], [node["html"][:200] for node in item["nodes"]]) for item in violations]


def assert_accessible(page: Page, selector: str = "html") -> None:
    """Check that the page does not scroll sideways and that a part of it has no barrier."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    barriers = find_barriers(page, selector, {})
    assert barriers == [], barriers
