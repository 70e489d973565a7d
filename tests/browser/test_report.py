"""Tests of the report of a comparison: one file that opens without a network and in which text is inert."""

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, make_metrics, running_service
from tests.browser.watched import WATCH_SCRIPT

REPORT_COLOURS = {"background": "#fff", "ink": "#000", "quiet": "#555", "line": "#ddd"}


def report(**changes):
    table = {"head": ["line"], "rows": [["a"]]}
    return {
        "title": "t", "note": "", "link": "http://127.0.0.1/compare", "made": "now", "facts": [],
        "charts": [], "sections": [{"title": "s", "note": "", "table": table}], "rollouts": [],
        "colours": REPORT_COLOURS, **changes,
    }  # fmt: skip


def open_report(browser, path):
    """Open a file without a network, and return its requests, elements, text and image widths."""
    context = browser.new_context(offline=True)
    messages, requests = [], []
    context.expose_function("__report", lambda *arguments: messages.append(arguments))
    context.add_init_script(WATCH_SCRIPT)

    def note(request):
        if not request.url.startswith("data:"):
            requests.append(request.url)

    context.on("request", note)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_timeout(300)
    report_state = page.evaluate("""() => { const all = [...document.querySelectorAll('*')]; return {
        elements: [...new Set(all.map((e) => e.localName))],
        handlers: all.flatMap((e) => [...e.attributes])
            .filter((a) => a.name.startsWith('on') || a.value.startsWith('javascript:')).length,
        text: document.body.textContent,
        pictures: [...document.images].map((image) => image.naturalWidth) }; }""")
    report_state |= {"said": list(messages), "requests": requests, "elements": set(report_state["elements"])}
    report_state["script"] = page.evaluate("""() => { const script = document.createElement('script');
        script.textContent = 'window.__ran = true'; document.body.append(script);
        return Boolean(window.__ran); }""")
    context.close()
    return report_state


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        body = {
            "name": HOSTILE[:60], "base": {"steps": 30}, "seeds": [0, 1],
            "variants": [{"name": "grpo"}, {"name": HOSTILE[:50], "optimizer": {"lr": 0.5}}],
        }  # fmt: skip
        runs = service.client.post("/experiments", json=body).raise_for_status().json()["runs"]
        for run in sorted(runs, key=lambda run: run["id"])[:3]:
            service.train(run["id"], 6, end="finished")
        service.trained = ",".join(run["id"] for run in runs)
        yield service


def test_a_report_opens_without_a_network_and_executes_nothing(page, service, browser, tmp_path):
    page.goto(f"/compare?runs={service.trained}&at=4")
    expect(page.locator(".panel .trace").first).to_be_attached()
    page.get_by_role("button", name="Report").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("title").fill("Is it better? </title><script>alert(3)</script>")
    dialog.get_by_label("at step").fill("4")
    with page.expect_download(timeout=120_000) as download:
        dialog.get_by_role("button", name="Save report").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.suffix == ".html"
    report_state = open_report(browser, path)
    assert (report_state["said"], report_state["requests"], report_state["script"]) == (
        [],
        [path.as_uri()],
        False,
    )
    assert len(report_state["pictures"]) == len(make_metrics(4))
    assert all(width > 500 for width in report_state["pictures"])
    for phrase in ("</title><script>alert(3)", "values: step 4", "optimizer.lr", "85+60+88=?", "Matrix"):
        assert phrase in report_state["text"]
    assert 'onerror="alert(1)"' in report_state["text"]
    assert path.stat().st_size < 1_000_000
