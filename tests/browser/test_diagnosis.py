"""The diagnosis on the page of a run, in a real browser."""

import pytest
from playwright.sync_api import expect

from backend.metrics.store import write_points
from backend.runs import leases, lifecycle
from tests.backend.diagnosis.logs import broken, healthy
from tests.browser.service import TOKEN, running
from tests.browser.test_pages import AXE


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as service:
        collapsed = broken(healthy(), 70, policy__entropy=lambda values: values * 4)
        collapsed = broken(collapsed, 75, reward__accuracy=lambda values: values * 0.05)
        service.trained = stored(service, "healthy", healthy())
        service.failed = stored(service, "collapsed", collapsed)
        yield service


def stored(service, name, log):
    """A finished run with these metrics."""
    run_id = service.launch(name)
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "test-worker", "test-host")
        assert claim.run_id == run_id
        lifecycle.begin_attempt(session, run_id, claim.attempt, -1)
        points = {}
        for metric, series in log.series.items():
            for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                points.setdefault(step, {})[metric] = value
        write_points(session, run_id, claim.attempt, sorted(points.items()))
        last = {metric: float(series.values[-1]) for metric, series in log.series.items()}
        summary = {"step": max(points), "last": last, "best": {}}
        leases.fence(session, run_id, claim.attempt, last_step=max(points), summary=summary)
        lifecycle.finish_run(session, run_id, claim.attempt, "finished")
    return run_id


@pytest.fixture(params=[(400, "dark"), (1400, "light")], ids=str)
def page(request, service, browser):
    width, scheme = request.param
    context = browser.new_context(
        base_url=service.base,
        color_scheme=scheme,
        viewport={"width": width, "height": 1000},
        extra_http_headers={"Authorization": f"Bearer {TOKEN}"},
    )
    page = context.new_page()
    yield page
    context.close()


def test_a_collapse_is_named_with_onset_evidence_and_remedy(page, service):
    page.goto(f"/run/{service.failed}")
    card = page.get_by_role("region", name="Diagnosis")
    expect(card.get_by_role("heading", name="Collapsed")).to_be_visible()
    expect(card).to_contain_text("reward/accuracy fell from a best of")
    expect(card).to_contain_text("First signal: policy/entropy, between steps")
    expect(card.get_by_role("heading", name="Entropy exploded")).to_be_visible()
    expect(card).to_contain_text("Try: A third of the learning rate")
    expect(card).to_contain_text("optimizer.lr: 0.0001")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(f"() => {{ const trustedTypes = undefined; {AXE} }}")
    found = page.evaluate("axe.run('.diagnosis')")["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
    card.get_by_role("link", name="How it works, and its error rates").click()
    expect(page.get_by_role("heading", name="Diagnosis", exact=True)).to_be_visible()


def test_a_healthy_run_says_so_in_a_line(page, service):
    page.goto(f"/run/{service.trained}")
    card = page.get_by_role("region", name="Diagnosis")
    expect(card.get_by_role("heading", name="Healthy")).to_be_visible()
    expect(card.get_by_role("heading", level=3)).to_have_count(0)
