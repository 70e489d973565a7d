"""Tests of suites on the pages: chosen in the form, compared in a table, with their completions."""

import pytest
from playwright.sync_api import expect
from sqlalchemy import update

from backend.metrics.store import write_points
from backend.metrics.summary import Summary
from backend.rollouts.store import pack_groups, write_groups
from backend.runs import leases, lifecycle
from backend.runs.checkpoints import add_checkpoint
from backend.storage.models import Run
from tests.browser.service import (
    NARROW_VIEWPORT,
    WIDE_VIEWPORT,
    make_checkpoint_row,
    make_group,
    open_context,
    running_service,
)
from worker.training.suite_metrics import GradedPrompt, suite_metrics

PAIRS_SUITE = {"name": "pairs", "problem": {"name": "sums", "operands": 2}, "prompts": 40, "n": 4, "every": 2}
STEP_COUNT = 4


def suite_values(name, step):
    """Return metrics of a suite in which more prompts are solved at each step."""
    votes = [("7", "7", "3", None) if prompt < 6 + 5 * step else ("3", "4", "3", "7") for prompt in range(40)]
    graded = [GradedPrompt([vote == "7" for vote in prompt_votes], prompt_votes) for prompt_votes in votes]
    metrics = suite_metrics(graded, seed=step) | {"length_mean": 20.0, "truncated_frac": 0.1}
    return {f"eval/{name}/{metric}": metric_value for metric, metric_value in metrics.items()}


def store_evaluations(service, run_id, steps, *, held_out=True):
    """Store what a trainer would that evaluates the suite after each of these steps."""
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "test-worker", "test-host")
        assert claim.run_id == run_id
        lifecycle.begin_attempt(session, run_id, claim.attempt, -1)
        summary = Summary()
        for step in steps:
            metrics = suite_values("pairs", step) | ({"eval/accuracy": 0.3} if held_out else {})
            write_points(session, run_id, claim.attempt, [(step, metrics)])
            summary.add_step(step, metrics)
            groups = [make_group("eval/pairs", step, index) for index in range(3)]
            write_groups(session, pack_groups(run_id, step, claim.attempt, groups))
        leases.fence(session, run_id, claim.attempt, last_step=max(steps), summary=summary.document())
        if held_out:
            add_checkpoint(session, make_checkpoint_row(run_id, claim.attempt, max(steps)))
        lifecycle.finish_run(session, run_id, claim.attempt, "finished", "")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with a run that has a suite at three steps."""
    with running_service(tmp_path_factory.mktemp("evaluations")) as service:
        run = service.launch("suites", evaluation={"suites": [PAIRS_SUITE]}, steps=STEP_COUNT)
        store_evaluations(service, run, (0, 2, 4))
        service.trained = run
        yield service


@pytest.fixture(params=[NARROW_VIEWPORT, WIDE_VIEWPORT], ids=str)
def page(request, browser, service):
    width, scheme = request.param
    context = open_context(browser, service, width, scheme)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    yield page
    context.close()


def test_suites_are_shown_side_by_side_with_intervals_and_link_to_completions(page, service):
    page.goto(f"/run/{service.trained}?tab=evaluations")
    table = page.get_by_role("group", name="Results by step and suite")
    expect(table.get_by_role("columnheader", name="held-out set")).to_be_visible()
    expect(table.get_by_role("columnheader", name="pairs")).to_contain_text("40 prompts × 4")
    expect(table.get_by_role("row", name="4 checkpoint")).to_contain_text("best")
    page.get_by_role("button", name="pass@4").click()
    expect(table.get_by_role("row", name="4 checkpoint")).to_contain_text("[")
    table.get_by_role("row", name="4 checkpoint").get_by_role("link").last.click()
    expect(page.get_by_role("button", name="pairs", pressed=True)).to_be_visible()
    expect(page.get_by_text("85+60+88=?").first).to_be_visible()


def test_an_interval_is_drawn_as_a_band_without_its_own_panel(page, service):
    page.goto(f"/run/{service.trained}?tab=charts&q=pairs")
    expect(page.locator("[data-metric='eval/pairs/accuracy'] .js-plotly-plot")).to_be_visible()
    assert page.locator("[data-metric='eval/pairs/accuracy_low']").count() == 0
    [series] = service.get("/series", runs=service.trained, metrics="eval/pairs/accuracy")["series"]
    assert all(
        low <= middle <= high
        for low, middle, high in zip(series["low"], series["values"], series["high"], strict=True)
    )


def test_checkpoints_can_be_evaluated_on_suites_and_join_the_table(page, service):
    page.goto(f"/run/{service.trained}?tab=evaluations")
    page.get_by_role("button", name="Evaluate checkpoints").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("GSM8K test")).to_be_visible()
    dialog.get_by_label("pairs").check()
    dialog.get_by_label("Held-out set").uncheck()
    dialog.get_by_role("button", name="Evaluate").click()
    link = page.get_by_role("tabpanel").get_by_role("link", name="step 4")
    expect(link).to_be_visible()
    [child] = [run["id"] for run in service.get("/runs", status="queued")["items"]]
    config = service.get(f"/runs/{child}")["config"]["evaluation"]
    assert (config["every"], [suite["name"] for suite in config["suites"]]) == (0, ["pairs"])
    store_evaluations(service, child, (0,), held_out=False)
    items = service.get("/evaluations", runs=service.trained)["items"]
    [later_evaluation] = [item for item in items if item["suite"] == "pairs" and item["step"] == 4]
    assert (later_evaluation["source"], later_evaluation["source_step"]) == (child, 0)
    with service.sessions.begin() as session:
        session.execute(update(Run).where(Run.id == child).values(deleted_at=1.0))
