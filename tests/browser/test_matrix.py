"""Tests of the ablation matrix of an experiment: mouse, keys, copy, and more seeds."""

import numpy as np
import pytest
from playwright.sync_api import expect

from backend.metrics.store import write_points
from backend.runs import leases, lifecycle
from tests.browser.service import HOSTILE, running_service

END_BY_VARIANT = {"grpo": (0.50, 0.55, 0.45), "dapo": (0.76, 0.80, 0.70), HOSTILE[:60]: (0.56, 0.57, 0.49)}
METRIC = "eval/accuracy"


def store_trained_run(service, run_id, end, metric=METRIC):
    """Store a finished run whose accuracy rises to `end`."""
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "test-worker", "test-host")
        assert claim is not None
        assert claim.run_id == run_id
        lifecycle.begin_attempt(session, run_id, claim.attempt, -1)
        for step in range(0, 31, 5):
            values = {metric: 0.1 + (end - 0.1) * float(np.sqrt(step / 30)), "length/mean": 40.0 + step + end}
            write_points(session, run_id, claim.attempt, [(step, values)])
        summary = {"step": 30, "last": {metric: end, "length/mean": 70.0}, "best": {}}
        leases.fence(session, run_id, claim.attempt, last_step=30, summary=summary)
        lifecycle.finish_run(session, run_id, claim.attempt, "finished", "")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        body = {"name": "clip", "base": {"steps": 30}, "seeds": [0, 1, 2]}
        body["variants"] = [{"name": name} for name in END_BY_VARIANT]
        experiment = service.client.post("/experiments", json=body).raise_for_status().json()
        for run in experiment["runs"]:
            store_trained_run(service, run["id"], END_BY_VARIANT[run["variant"]][run["seed"]])
        service.experiment = experiment["id"]
        yield service


def cell(page, row, column=0):
    return page.locator(".matrix tbody tr").nth(row).locator("td.number").nth(column)


@pytest.fixture
def results_page(page, service):
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.goto(f"/experiment/{service.experiment}?tab=results&columns={METRIC}:final,length/mean:final")
    page.evaluate("document.documentElement.lang")
    expect(page.locator(".matrix tbody tr")).to_have_count(3)
    return page


def test_cells_state_what_can_be_claimed(results_page):
    expect(results_page.locator(".matrix")).to_contain_text("Plan: 3 seeds per variant, one look at the end")
    expect(cell(results_page, 0)).to_contain_text("0.5")
    better_cell = cell(results_page, 1)
    expect(better_cell).to_contain_text("better")
    better_cell.locator(".matrix-cell").focus()
    details = results_page.locator(".matrix-details")
    expect(details).to_contain_text("over 3 pairs of seeds")
    expect(details).to_contain_text("corrected over 4 differences")
    cell(results_page, 2).locator(".matrix-cell").hover()
    expect(details).to_contain_text("more seeds would decide this at 80 %")


def test_the_copied_text_is_the_table(results_page):
    results_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for label, phrase in (
        ("Copy as Markdown", "| dapo | 0.75"),
        ("Copy as LaTeX", "\\textbf{0.75"),
        ("Copy as CSV", "dapo,eval/accuracy,final,,3,"),
    ):
        results_page.get_by_role("button", name="Copy", exact=True).click()
        results_page.get_by_role("button", name=label).click()
        results_page.wait_for_function(
            "text => navigator.clipboard.readText().then(t => t.includes(text))", arg=phrase
        )


def test_the_values_of_a_chart_match_the_matrix(results_page, service):
    results_page.goto(f"/compare?experiment={service.experiment}&columns={METRIC}:final&values=1")
    values = results_page.locator(f".panel[data-metric='{METRIC}'] .values")
    expect(values).to_contain_text("at the end: last evaluation")
    expect(values).to_contain_text("± 95 % CI")
    numbers = {}
    for name in ("grpo", "dapo"):
        line = values.locator("tbody tr").filter(has_text=name).first
        numbers[name] = line.locator("td.number").all_inner_texts()[:2]
    results_page.get_by_role("tab", name="Results").click()
    for row, texts in enumerate(numbers.values()):
        for text in texts:
            expect(cell(results_page, row)).to_contain_text(text)


@pytest.mark.nightly
def test_more_seeds_are_queued_from_the_cell(results_page, service):
    run_count = len(service.get("/runs")["items"])
    button = cell(results_page, 2).locator(".matrix-more")
    seeds = int(button.inner_text().split()[1])
    button.click()
    results_page.get_by_role("dialog").get_by_role("button", name=f"Queue {2 * seeds} runs").click()
    expect(results_page.locator(".matrix")).to_contain_text("always-valid", timeout=60_000)
    runs = service.get("/runs")["items"]
    assert len(runs) == run_count + 2 * seeds
    queued_runs = [run for run in runs if run["status"] == "queued"]
    assert {run["seed"] for run in queued_runs} == set(range(3, 3 + seeds))
    assert "runs=" in results_page.url
