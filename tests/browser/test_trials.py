"""Tests of the way from a diagnosis to a trial and its verdict, in a real browser."""

import pytest
from playwright.sync_api import expect

from backend.runs import lifecycle
from backend.storage.models import Run
from tests.backend.analysis.diagnosis.logs import change_series, healthy
from tests.browser.accessibility import assert_accessible
from tests.browser.service import HOSTILE, NARROW_VIEWPORT, WIDE_VIEWPORT, open_context, running_service
from tests.browser.test_diagnosis import store_run
from tests.contract.test_trials import store_log
from tests.factories import make_checkpoint

COLLAPSED_LOG = change_series(
    change_series(healthy(), 70, policy__entropy=lambda values: values * 4),
    75,
    reward__accuracy=lambda values: values * 0.05,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lab")
    with running_service(directory) as service:
        service.failed = store_run(service, "collapsed", COLLAPSED_LOG)
        with service.sessions.begin() as session:
            run = session.get_one(Run, service.failed)
            checkpointing = run.config["checkpointing"] | {"every": 20}
            run.config, run.steps = run.config | {"steps": 120, "checkpointing": checkpointing}, 120
            for step in (20, 40):
                make_checkpoint(session, run, directory, step=step)
        yield service


@pytest.fixture(params=[NARROW_VIEWPORT, WIDE_VIEWPORT], ids=str)
def page(request, service, browser):
    width, scheme = request.param
    context = open_context(browser, service, width, scheme)
    yield context.new_page()
    context.close()


def finish_trial(service, experiment):
    """Finish the runs of a trial, of which those without a change fell."""
    with service.sessions.begin() as session:
        for run in session.query(Run).where(Run.experiment_id == experiment):
            store_log(
                session,
                run,
                healthy() if run.variant == "remedy" else COLLAPSED_LOG,
                after_step=run.fork_step,
            )
            run.status = "running"
            session.flush()
            lifecycle.finish_run(session, run.id, run.attempt, "finished")


def test_two_clicks_lead_from_the_diagnosis_to_a_trial_which_shows_its_verdict(page, service):
    earlier_trial_ids = {trial["id"] for trial in service.get("/trials", run=service.failed)["items"]}
    page.goto(f"/run/{service.failed}")
    card = page.get_by_role("region", name="Diagnosis")
    card.get_by_role("button", name="Try the remedy").click()
    dialog = page.get_by_role("dialog", name="Try the remedy")
    expect(dialog).to_contain_text("Every run forks from step 40, the nearest earlier one.")
    expect(dialog.get_by_role("textbox", name="remedy")).to_have_value("optimizer.lr: 0.0001")
    expect(dialog.get_by_role("note", name="Price")).to_contain_text("11 runs")
    start = dialog.get_by_role("button", name="Start 11 runs")
    expect(start).to_be_enabled()
    assert_accessible(page, ".dialog")
    start.click()
    expect(dialog).to_have_count(0)
    trial = card.get_by_role("article", name="Trial: Entropy exploded").first
    expect(trial).to_contain_text("So far: 0 of 5 runs without change have ended and 0 of 5 with the remedy.")
    (new_trial,) = [
        trial
        for trial in service.get("/trials", run=service.failed)["items"]
        if trial["id"] not in earlier_trial_ids
    ]
    finish_trial(service, new_trial["experiment"])
    page.reload()
    expect(trial).to_contain_text(
        "The collapse recurred in 5 of 5 runs without change and in 0 of 5 with the remedy (Fisher's exact "
        "test, one-sided p = .004)."
    )
    expect(trial).to_contain_text("the run repeats itself bit for bit")
    assert_accessible(page, ".diagnosis")
    trial.scroll_into_view_if_needed()
    trial.get_by_role("link", name="Compare the curves").click()
    expect(page.get_by_role("heading", name="Trial of", level=1)).to_be_visible()
    page.get_by_role("tab", name="Trial").click()
    trial_card = page.get_by_role("article", name="Trial: Entropy exploded")
    expect(trial_card).to_contain_text("The collapse recurred in 5 of 5 runs without change")
    expect(trial_card.get_by_role("link").first).to_have_attribute("href", f"/run/{service.failed}")
    assert_accessible(page, ".trial")


@pytest.mark.nightly
def test_changes_are_checked_while_they_are_typed(browser, service):
    context = open_context(browser, service)
    page = context.new_page()
    page.goto(f"/run/{service.failed}")
    page.get_by_role("button", name="Try the remedy").click()
    dialog = page.get_by_role("dialog")
    remedy = dialog.get_by_role("textbox", name="remedy")
    start = dialog.locator("footer .button-primary")
    remedy.fill("optimizer.lr: -1")
    expect(dialog.get_by_role("alert")).to_contain_text("optimizer.lr must be greater than 0")
    expect(start).to_be_disabled()
    remedy.fill("optimizer.lr")
    expect(dialog.get_by_role("alert")).to_contain_text("line 1 is not “path: value”")
    remedy.fill(f"preset: {HOSTILE!r}")
    expect(dialog.get_by_role("alert")).to_be_visible()
    remedy.fill("optimizer.lr: 0.00005")
    expect(start).to_be_enabled()
    dialog.get_by_role("button", name="Add a change to try").click()
    dialog.get_by_role("textbox", name="change 1").fill("objective.surrogate.eps_high: 0.28")
    expect(start).to_have_text("Start 16 runs")
    dialog.get_by_role("textbox", name="Runs of each arm").fill("2")
    expect(start).to_have_text("Start 7 runs")
    expect(dialog).to_contain_text("no result can be significant")
    dialog.get_by_role("textbox", name="Last step").fill("30")
    expect(dialog.get_by_role("alert")).to_contain_text("is 30, but the fork starts after step 40")
    expect(start).to_be_disabled()
    context.close()
