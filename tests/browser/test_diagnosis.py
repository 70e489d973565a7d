"""Tests of the diagnosis on the page of a run, in a real browser."""

import re

import pytest
from playwright.sync_api import expect
from sqlalchemy import update

from backend.metrics.store import write_points
from backend.rollouts.store import pack_groups, write_groups
from backend.runs import leases, lifecycle
from backend.runs.checkpoints import add_checkpoint, keep_before
from backend.storage.models import Run
from tests.backend.analysis.diagnosis.logs import change_series, healthy
from tests.browser.accessibility import assert_accessible
from tests.browser.service import (
    NARROW_VIEWPORT,
    WIDE_VIEWPORT,
    make_checkpoint_row,
    make_group,
    open_context,
    running_service,
)
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        collapsed = change_series(healthy(), 70, policy__entropy=lambda values: values * 4)
        collapsed = change_series(collapsed, 75, reward__accuracy=lambda values: values * 0.05)
        service.trained = store_run(service, "healthy", healthy())
        service.failed = store_run(service, "collapsed", collapsed)
        wait_for(lambda: all(run["verdict"] for run in service.get("/runs")["items"]))
        yield service


def store_run(service, name, log):
    """Store a finished run with these metrics."""
    run_id = service.launch(name)
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "test-worker", "test-host")
        assert claim.run_id == run_id
        lifecycle.begin_attempt(session, run_id, claim.attempt, -1)
        points = {}
        for metric, series in log.series.items():
            for step, metric_value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                points.setdefault(step, {})[metric] = metric_value
        write_points(session, run_id, claim.attempt, sorted(points.items()))
        last = {metric: float(series.values[-1]) for metric, series in log.series.items()}
        summary = {"step": max(points), "last": last, "best": {}}
        for step in (60, 74, 90):
            write_groups(session, pack_groups(run_id, step, 1, [make_group("train", step, 0)]))
        add_checkpoint(session, make_checkpoint_row(run_id, 1, 60))
        add_checkpoint(session, make_checkpoint_row(run_id, 1, 120))
        if name == "collapsed":
            keep_before(session, run_id, "verdict", healthy_step=70, sick_step=71)
        leases.fence(session, run_id, claim.attempt, last_step=max(points), summary=summary)
        lifecycle.finish_run(session, run_id, claim.attempt, "finished")
    return run_id


@pytest.fixture(params=[NARROW_VIEWPORT, WIDE_VIEWPORT], ids=str)
def page(request, service, browser):
    width, scheme = request.param
    context = open_context(browser, service, width, scheme)
    page = context.new_page()
    yield page
    context.close()


def test_a_collapse_is_shown_with_its_onset_cause_and_next_steps(page, service):
    page.goto(f"/run/{service.failed}")
    card = page.get_by_role("region", name="Diagnosis")
    expect(card.get_by_role("heading", name="Collapsed")).to_be_visible()
    expect(card).to_contain_text("reward/accuracy was best at about step")
    expect(card).to_contain_text("The fall began after step")
    expect(card).to_contain_text("First signal: policy/entropy, between steps")
    expect(card.get_by_role("heading", name="Entropy exploded")).to_be_visible()
    expect(card).to_contain_text("No entropy bonus; where there is none, a third of the learning rate")
    expect(card).to_contain_text("optimizer.lr: 0.0003 → 0.0001")
    expect(card.locator(".button-primary")).to_have_text("Try the remedy")
    expect(card.get_by_role("region", name="Before the onset")).to_contain_text("its answer is right")
    expect(card.get_by_role("region", name="After it")).to_contain_text("reward 0")
    assert_accessible(page, ".diagnosis")
    card.get_by_role("link", name="How it works, and its error rates").click()
    expect(page.get_by_role("heading", name="Diagnosis", exact=True)).to_be_visible()


def test_every_tab_shows_the_verdict_and_links_to_the_diagnosis(page, service):
    page.goto(f"/run/{service.failed}?tab=config")
    page.get_by_role("link", name="Collapsed, onset between steps").click()
    expect(page.get_by_role("region", name="Diagnosis")).to_be_visible()


SHIFT_OBSERVER = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) window.shift += value;
}).observe({ type: 'layout-shift', buffered: true });
"""


def test_the_layout_does_not_shift_while_the_overview_loads(page, service):
    page.add_init_script(SHIFT_OBSERVER)
    page.goto(f"/run/{service.failed}")
    expect(page.locator("[data-metric='reward/accuracy'] .scatterlayer .trace").first).to_be_attached()
    expect(page.get_by_role("region", name="Signal budget")).to_be_attached()
    assert page.evaluate("window.shift") < 0.02


@pytest.mark.nightly
def test_the_list_shows_filters_and_sorts_by_verdict(page, service):
    page.goto("/runs")
    table = page.get_by_role("table", name="Runs")
    row = table.get_by_role("row").filter(has_text="collapsed").first
    expect(row.locator(".verdict-bad")).to_have_text("collapsed by 73")
    page.locator(".runs-filters").get_by_role("button", name="verdict").click()
    page.get_by_role("button", name="collapsed", exact=True).click()
    expect(page).to_have_url(re.compile("verdict=collapsed"))
    expect(table.locator(".grid-row")).to_have_count(1)
    page.goto("/runs?sort=onset")
    expect(table.locator(".grid-row").first).to_contain_text("collapsed")


def test_every_curve_shows_the_onset_which_can_be_hidden(page, service):
    page.goto(f"/run/{service.failed}?tab=charts")
    panel = page.locator("[data-metric='reward/accuracy']")
    expect(panel.get_by_text("onset")).to_be_visible()
    page.get_by_role("button", name="Display").click()
    page.get_by_label("onsets").uncheck()
    expect(panel.get_by_text("onset")).to_have_count(0)
    expect(page).to_have_url(re.compile("onsets=0"))
    page.goto(f"/run/{service.trained}?tab=charts")
    expect(page.locator("[data-metric='reward/accuracy'] .scatterlayer .trace").first).to_be_attached()
    expect(page.locator("[data-metric='reward/accuracy']").get_by_text("onset")).to_have_count(0)


def test_the_card_links_to_the_first_rollouts_after_the_onset(page, service):
    page.goto(f"/run/{service.failed}")
    page.get_by_role("link", name=re.compile("First rollouts after the onset: step")).click()
    expect(page).to_have_url(re.compile(f"/run/{service.failed}.*tab=rollouts"))
    expect(page.locator(".step-onset")).to_be_attached()
    expect(page.get_by_role("spinbutton", name="step")).to_have_value("74")


def test_a_verdict_appears_without_reloading(page, service):
    page.goto(f"/run/{service.trained}?tab=charts")
    expect(page.locator("[data-metric='reward/accuracy']").get_by_text("onset")).to_have_count(0)
    with service.sessions.begin() as session:
        verdict_fields = {
            "verdict": "collapsed",
            "onset_healthy": 50,
            "onset_sick": 60,
            "cause": "update_size",
        }
        session.execute(update(Run).where(Run.id == service.trained).values(**verdict_fields))
    expect(page.locator("[data-metric='reward/accuracy']").get_by_text("onset")).to_be_visible()
    with service.sessions.begin() as session:
        session.execute(update(Run).where(Run.id == service.trained).values(judged_step=None))
    onset = page.locator("[data-metric='reward/accuracy']").get_by_text("onset")
    expect(onset).to_have_count(0, timeout=120_000)
