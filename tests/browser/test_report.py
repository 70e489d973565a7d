"""The report of a comparison: one file that opens without a network and in which text is nothing but text."""

import numpy as np
import pytest
from playwright.sync_api import expect

from backend.metrics.store import write_series
from backend.storage.models import Attempt, Run
from tests.browser.payloads import PAYLOADS
from tests.browser.service import HOSTILE, metrics_of, running
from tests.browser.watched import WATCH

REPORT = "lib/report.js"
COLOURS = {"background": "#fff", "ink": "#000", "quiet": "#555", "line": "#ddd"}


def report(**changes):
    table = {"head": ["line"], "rows": [["a"]]}
    return {
        "title": "t", "note": "", "link": "http://127.0.0.1/compare", "made": "now", "facts": [],
        "charts": [], "sections": [{"title": "s", "note": "", "table": table}], "rollouts": [],
        "colours": COLOURS, **changes,
    }  # fmt: skip


def saved(page, path):
    """The report of the page that is open, with what its dialog proposes."""
    page.get_by_role("button", name="Report").click()
    with page.expect_download(timeout=300_000) as download:
        page.get_by_role("dialog").get_by_role("button", name="Save report").click()
    download.value.save_as(path)
    return path


@pytest.mark.nightly
@pytest.mark.parametrize("field", ["title", "note", "link", "cell", "section", "rollout", "chart"])
def test_no_text_is_markup_anywhere(in_browser, browser, tmp_path, field):
    texts = [*PAYLOADS[:120], HOSTILE, "javascript:alert(1)", "]]>--><svg onload=alert(1)>"]
    table = {"head": texts, "rows": [texts]}
    group = {"prompt": texts[0], "answer": "", "completions": [{"facts": t, "text": t} for t in texts]}
    parts: dict[str, dict[str, object]] = {
        "title": {"title": " ".join(texts)},
        "note": {"note": "\n".join(texts)},
        "link": {"link": f"javascript:alert(1)//{texts[0]}"},
        "cell": {"sections": [{"title": "s", "note": "", "table": table}]},
        "section": {"sections": [{"title": t, "note": t, "table": table} for t in texts[:30]]},
        "rollout": {"rollouts": [{"title": t, **group} for t in texts[:10]]},
        "chart": {
            "charts": [{"title": t, "picture": f"<svg>{t}</svg>", "values": table} for t in texts[:20]]
        },
    }
    text = in_browser(REPORT, "(r, report) => r.reportHtml(report)", report(**parts[field]))
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    hits = opened(browser, path)
    assert (hits["said"], hits["requests"], hits["script"]) == ([], [path.as_uri()], False)
    assert hits["elements"] <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "br", "a", "table", "thead",
        "tbody", "tr", "th", "td", "div", "figure", "img", "details", "summary", "pre",
    }  # fmt: skip
    assert hits["handlers"] == 0


def opened(browser, path):
    """A file opened without a network: what it did, its elements and text, the widths of its pictures."""
    context = browser.new_context(offline=True)
    messages, requests = [], []
    context.expose_function("__report", lambda *arguments: messages.append(arguments))
    context.add_init_script(WATCH)

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
    with running(tmp_path_factory.mktemp("lab")) as service:
        body = {
            "name": HOSTILE[:60], "base": {"steps": 30}, "seeds": [0, 1],
            "variants": [{"name": "grpo"}, {"name": HOSTILE[:50], "optimizer": {"lr": 0.5}}],
        }  # fmt: skip
        runs = service.client.post("/experiments", json=body).raise_for_status().json()["runs"]
        for run in sorted(runs, key=lambda run: run["id"])[:3]:
            service.train(run["id"], 6, end="finished")
        service.trained = ",".join(run["id"] for run in runs)
        yield service


def test_a_report_opens_without_a_network_and_runs_nothing(page, service, browser, tmp_path):
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
    report_state = opened(browser, path)
    assert (report_state["said"], report_state["requests"], report_state["script"]) == (
        [],
        [path.as_uri()],
        False,
    )
    assert len(report_state["pictures"]) == len(metrics_of(4))
    assert all(width > 500 for width in report_state["pictures"])
    for phrase in ("</title><script>alert(3)", "values: step 4", "optimizer.lr", "85+60+88=?", "Matrix"):
        assert phrase in report_state["text"]
    assert 'onerror="alert(1)"' in report_state["text"]
    assert path.stat().st_size < 1_000_000


@pytest.mark.nightly
def test_a_report_without_a_matrix_says_why_there_is_none(page, service, browser, tmp_path):
    columns = ",".join(f"eval/accuracy:steps_to:{number}" for number in range(17))
    page.goto(f"/compare?runs={service.trained}&columns={columns}&metrics=reward")
    expect(page.locator(".panel .trace").first).to_be_attached()
    text = opened(browser, saved(page, tmp_path / "refused.html"))["text"]
    assert "The service refused it: metrics: has 17 columns" in text
    assert "Config differences" in text


@pytest.mark.nightly
def test_fifty_runs_and_thirty_charts_stay_below_three_megabytes(page, service, browser, tmp_path):
    variants = [{"name": f"lr {number}", "optimizer": {"lr": 1e-4 * (number + 1)}} for number in range(10)]
    body = {"name": "wide", "base": {"steps": 400}, "seeds": list(range(5)), "variants": variants}
    launched = service.client.post("/experiments", json=body).raise_for_status().json()["runs"]
    noise = np.random.default_rng(0)
    steps = np.arange(400)
    names = [f"reward/term_{number}/mean" for number in range(30)]
    with service.sessions.begin() as session:
        for run in launched:
            session.get_one(Run, run["id"]).status = "finished"
            session.get_one(Run, run["id"]).summary = {
                "step": 399,
                "last": dict.fromkeys(names, 0.5),
                "best": {},
            }
            session.add(Attempt(run_id=run["id"], number=1, worker_id="w", host="h", pid=1, from_step=-1))
            session.flush()
            write_series(session, run["id"], 1, {name: (steps, noise.normal(size=400)) for name in names})
    runs = ",".join(run["id"] for run in launched)
    page.goto(f"/compare?runs={runs}&metrics={','.join(names)}")
    expect(page.locator(".panel .trace, .panel canvas").first).to_be_attached()
    path = saved(page, tmp_path / "wide.html")
    assert path.stat().st_size <= 3_000_000
    report_state = opened(browser, path)
    assert len(report_state["pictures"]) == 30
    assert report_state["said"] == []
    assert report_state["requests"] == [path.as_uri()]
