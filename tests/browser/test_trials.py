"""A person's way from a diagnosis to a trial and its verdict, in a real browser."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from backend.runs import lifecycle
from backend.storage.models import Run
from tests.backend.analysis.diagnosis.logs import broken, healthy
from tests.browser.service import HOSTILE, NARROW, VIEWER_TOKEN, WIDE, opened, running
from tests.browser.test_diagnosis import stored
from tests.browser.test_pages import AXE
from tests.contract.test_trials import store
from tests.factories import make_checkpoint
from tests.waiting import wait_for

PICTURES = os.environ.get("GRPOLAB_PICTURES", "")
"""Folder for pictures of what the tests see; empty: none."""

ILL = broken(
    broken(healthy(), 70, policy__entropy=lambda values: values * 4),
    75,
    reward__accuracy=lambda values: values * 0.05,
)
SILENT = broken(healthy(), 75, reward__accuracy=lambda values: values * 0.05)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lab")
    with running(directory) as service:
        service.failed = stored(service, "collapsed", ILL)
        service.waiting = stored(service, "silent", SILENT)
        with service.sessions.begin() as session:
            for run_id in (service.failed, service.waiting):
                run = session.get_one(Run, run_id)
                config = run.config | {
                    "steps": 120,
                    "checkpointing": run.config["checkpointing"] | {"every": 20},
                }
                run.config, run.steps = config, 120
            for step in (20, 40):
                make_checkpoint(session, session.get_one(Run, service.failed), directory, step=step)
        yield service


@pytest.fixture(params=[NARROW, WIDE], ids=str)
def page(request, service, browser):
    width, scheme = request.param
    context = opened(browser, service, width, scheme)
    yield context.new_page()
    context.close()


def picture(page, name):
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}-{page.viewport_size['width']}.png")


def looks_right(page, where):
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(f"() => {{ const trustedTypes = undefined; {AXE} }}")
    barriers = page.evaluate("where => axe.run(where)", where)["violations"]
    assert [(barrier["id"], barrier["nodes"][0]["html"][:200]) for barrier in barriers] == []


def finish(service, experiment):
    """The runs of a trial as they ended: those without change fell."""
    with service.sessions.begin() as session:
        for run in session.query(Run).where(Run.experiment_id == experiment):
            store(session, run, healthy() if run.variant == "remedy" else ILL, after=run.fork_step)
            run.status = "running"
            session.flush()
            lifecycle.finish_run(session, run.id, run.attempt, "finished")


def test_two_clicks_lead_from_the_diagnosis_to_a_trial_and_its_verdict_is_shown_there(page, service):
    before = {trial["id"] for trial in service.get("/trials", run=service.failed)["items"]}
    page.goto(f"/run/{service.failed}")
    card = page.get_by_role("region", name="Diagnosis")
    card.get_by_role("button", name="Try the remedy").click()
    dialog = page.get_by_role("dialog", name="Try the remedy")
    expect(dialog).to_contain_text("Every run forks from step 40, the nearest earlier one.")
    expect(dialog.get_by_role("textbox", name="remedy")).to_have_value("optimizer.lr: 0.0001")
    expect(dialog.get_by_role("note", name="Price")).to_contain_text("11 runs")
    start = dialog.get_by_role("button", name="Start 11 runs")
    expect(start).to_be_enabled()
    looks_right(page, ".dialog")
    picture(page, "dialog")
    start.click()
    expect(dialog).to_have_count(0)
    trial = card.get_by_role("article", name="Trial: Entropy exploded").first
    expect(trial).to_contain_text("So far: 0 of 5 runs without change have ended and 0 of 5 with the remedy.")
    (new_trial,) = [
        trial for trial in service.get("/trials", run=service.failed)["items"] if trial["id"] not in before
    ]
    finish(service, new_trial["experiment"])
    page.reload()
    expect(trial).to_contain_text(
        "The collapse recurred in 5 of 5 runs without change and in 0 of 5 with the remedy (Fisher's exact "
        "test, one-sided p = .004)."
    )
    expect(trial).to_contain_text("the run repeats itself bit for bit")
    looks_right(page, ".diagnosis")
    trial.scroll_into_view_if_needed()
    picture(page, "verdict")
    trial.get_by_role("link", name="Compare the curves").click()
    expect(page.get_by_role("heading", name="Trial of", level=1)).to_be_visible()
    shown = page.get_by_role("article", name="Trial: Entropy exploded")
    expect(shown).to_contain_text("The collapse recurred in 5 of 5 runs without change")
    expect(shown.get_by_role("link").first).to_have_attribute("href", f"/run/{service.failed}")
    looks_right(page, ".trial")
    picture(page, "experiment")


@pytest.mark.nightly
def test_four_clicks_lead_from_the_list_past_the_first_bad_rollout_to_a_launched_trial(browser, service):
    """Run, first bad rollouts, Try the remedy, Start."""
    wait_for(lambda: service.get(f"/runs/{service.failed}")["verdict"])
    before = len(service.get("/trials", run=service.failed)["items"])
    context = opened(browser, service)
    page = context.new_page()
    page.goto("/runs?sort=onset")
    row = page.get_by_role("table", name="Runs").get_by_role("row").filter(has_text="collapsed").first
    expect(row.locator(".verdict-bad")).to_contain_text("collapsed")
    row.locator(f'a[href^="/run/{service.failed}"]').first.click()
    page.get_by_role("link", name="First bad rollouts").click()
    expect(page.get_by_text("onset: step")).to_be_visible()
    expect(page.get_by_role("article").first).to_be_visible()
    page.get_by_role("button", name="Try the remedy").click()
    start = page.get_by_role("dialog").locator("footer .button-primary")
    expect(start).to_be_enabled()
    start.click()
    expect(page.get_by_text(re.compile("Trial of .* started"))).to_be_visible()
    assert len(service.get("/trials", run=service.failed)["items"]) == before + 1
    context.close()


@pytest.mark.nightly
def test_changes_are_checked_while_they_are_written(browser, service):
    context = opened(browser, service)
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


@pytest.mark.nightly
def test_a_run_without_a_cause_offers_to_write_a_change_down(browser, service):
    context = opened(browser, service)
    page = context.new_page()
    page.goto(f"/run/{service.waiting}")
    card = page.get_by_role("region", name="Diagnosis")
    card.get_by_role("button", name="Try").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("write down at least one change to try")
    dialog.get_by_role("button", name="Add a change to try").click()
    dialog.get_by_role("textbox", name="change 1").fill("optimizer.lr: 0.0001")
    dialog.locator("footer .button-primary").click()
    expect(dialog).to_have_count(0)
    expect(card.get_by_role("article", name="Trial")).to_contain_text("Every run starts from step 0.")
    context.close()


@pytest.mark.nightly
def test_a_viewer_sees_trials_and_no_button(browser, service):
    context = opened(browser, service, token=VIEWER_TOKEN)
    page = context.new_page()
    page.goto(f"/run/{service.failed}")
    card = page.get_by_role("region", name="Diagnosis")
    expect(card.get_by_role("heading", name="Collapsed")).to_be_visible()
    expect(card.get_by_role("button", name="Try")).to_have_count(0)
    context.close()
