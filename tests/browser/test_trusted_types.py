"""Tests of the pages under Trusted Types, which the service requires: text never becomes markup."""

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import ARGUMENTS
from tests.browser.service import TOKEN, running_service


@pytest.fixture(scope="module")
def page_and_errors(tmp_path_factory, chromium):
    """A page that shows a trained run, and the list of its console errors."""
    with running_service(tmp_path_factory.mktemp("lab")) as service, sync_playwright() as playwright:
        run = service.launch("trained")
        service.train(run, 4, end="finished")
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        page = browser.new_context(base_url=service.base, extra_http_headers=headers).new_page()
        page.set_default_timeout(120_000)
        console_errors = []
        page.on(
            "console",
            lambda message: console_errors.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: console_errors.append(str(error)))
        page.goto(f"/run/{run}")
        yield page, console_errors
        browser.close()


def test_charts_formulas_and_pictures_need_no_markup_from_text(page_and_errors):
    page, console_errors = page_and_errors
    expect(page.locator(".js-plotly-plot .trace").first).to_be_visible()
    expect(page.locator("math").first).to_be_visible()
    panel = page.locator(".panel").first
    panel.hover()
    panel.get_by_role("button", name="Download").click()
    panel.get_by_role("button", name="Figure").click()
    dialog = page.get_by_role("dialog")
    for kind in ("PNG", "SVG", "PDF"):
        dialog.get_by_role("button", name=kind, exact=True).click()
        with page.expect_download(timeout=120_000) as download:
            dialog.get_by_role("button", name=f"Save {kind}").click()
        assert download.value.suggested_filename == f"reward-mean.{kind.lower()}"
    assert console_errors == []


@pytest.mark.parametrize(
    "attempt",
    [
        "document.body.innerHTML = '<img src=x onerror=alert(1)>'",
        "document.createElement('script').src = '/static/src/main.js'",
        "trustedTypes.createPolicy('mine', {createHTML: (text) => text})",
        "new Promise((resolve) => setTimeout(resolve)).then(() => eval('1'))",
    ],
)
def test_the_browser_blocks_markup_from_text(page_and_errors, attempt):
    page, _ = page_and_errors
    trying = f"try {{ await ({attempt}); return '' }} catch (error) {{ return error.name }}"
    error_name = page.evaluate(f"async () => {{ {trying} }}")
    assert error_name in ("TypeError", "EvalError")
