"""Tests of sweeps and ladders, from the launch form to finished cells, in a real browser."""

import json
import re
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from backend.runs import leases, lifecycle

GRPO_VARIANTS = [{"name": "grpo", "preset": "grpo"}]


def launch_page(page, variants=None, **further_fields):
    fields = {"variants": json.dumps(variants or GRPO_VARIANTS), "seeds": "0,1"} | further_fields
    page.goto("/launch?" + urlencode(fields))


def sweep_in_address(page):
    """Return the sweep in the address."""
    [sweep] = parse_qs(urlsplit(page.url).query)["sweep"]
    return json.loads(sweep)


def finish_run(service, run_id, accuracy, end="finished"):
    """Store the results of a run that was trained to this accuracy."""
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "test-worker", "test-host")
        assert claim is not None
        assert claim.run_id == run_id
        lifecycle.begin_attempt(session, run_id, claim.attempt, -1)
        last = {"eval/accuracy": accuracy, "reward/mean": -accuracy}
        leases.fence(
            session, run_id, claim.attempt, last_step=5, summary={"step": 5, "last": last, "best": {}}
        )
        lifecycle.finish_run(session, run_id, claim.attempt, end, "")


def test_a_sweep_is_typed_planned_launched_and_its_cells_fill(page, service):
    launch_page(page, base=json.dumps({"steps": 5}))
    rate = page.locator('[data-path="optimizer.lr"] input').first
    rate.fill("1e-4, 3e-4, 1e-3")
    rate.press("Enter")
    sweep = page.get_by_role("region", name="Sweep")
    expect(sweep.get_by_label("optimizer.lr", exact=True)).to_have_value("1e-4, 3e-4, 1e-3")
    sweep.get_by_label("Knob to sweep").fill("sampling.group_size")
    sweep.get_by_role("button", name="Add knob").click()
    sweep.get_by_label("sampling.group_size", exact=True).fill("4..8 step 4")
    expect(sweep.get_by_role("status")).to_contain_text("6 cells × 2 seeds = 12 runs")
    expect(sweep.get_by_role("row")).to_have_count(7)
    page.get_by_role("button", name="Launch 12 runs").click()
    expect(page).to_have_url(re.compile(r"/experiment/"))
    page.get_by_role("tab", name="Results").click()
    cells = page.get_by_role("region", name="Grid of the sweep")
    expect(cells.get_by_role("row")).to_have_count(4)
    expect(cells.get_by_role("cell")).to_have_count(6)
    expect(cells).to_contain_text("0 of 12 runs finished")
    [experiment] = service.get("/experiments", limit=1)["items"]
    runs = service.get("/runs", experiment=experiment["id"], limit=50)["items"]
    in_turn = sorted(runs, key=lambda run: run["id"])
    assert in_turn[0]["variant"] == "grpo lr=0.0001 group_size=4"
    finish_run(service, in_turn[0]["id"], 0.25)
    expect(cells).to_contain_text("1 of 12 runs finished")
    expect(cells.get_by_role("cell").first).to_contain_text("0.25")
    expect(cells.get_by_role("cell").first).to_contain_text("1 of 2 seeds")
    finish_run(service, in_turn[1]["id"], 0.75)
    expect(cells.get_by_role("cell", name="0.75")).to_have_count(1)
    cells.get_by_label("metric").select_option("reward/mean")
    expect(cells.get_by_role("cell", name="-0.75").or_(cells.get_by_text("−0.75"))).to_have_count(1)
    link = cells.get_by_role("cell").first.get_by_role("link").first
    expect(link).to_have_attribute("href", f"/run/{in_turn[0]['id']}")


@pytest.mark.nightly
def test_a_ladder_adds_one_knob_at_a_time_in_the_chosen_order(page):
    launch_page(page, [{"name": "dapo", "preset": "dapo"}, *GRPO_VARIANTS])
    page.get_by_role("button", name="Ablations").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Add one at a time").click()
    dialog.get_by_label("Start from").select_option("grpo")
    boxes = dialog.get_by_role("checkbox")
    paths = [box.get_attribute("aria-label") for box in boxes.all()]
    assert "objective.surrogate.eps_high" in paths
    for _ in range(paths.index("objective.surrogate.eps_high")):
        dialog.get_by_role("button", name="Move objective.surrogate.eps_high up").click()
    rungs = dialog.get_by_role("list", name="Variants to add").get_by_role("listitem")
    expect(rungs).to_have_count(len(paths) - 1)  # grpo exists already, and the last rung is dapo itself
    expect(rungs.first).to_have_text("grpo + eps_high")
    dialog.get_by_role("button", name=re.compile("^Add \\d+ variants?$")).click()
    expect(page.get_by_label("Name of variant 3")).to_have_value("grpo + eps_high")
    [variants] = parse_qs(urlsplit(page.url).query)["variants"]
    added = json.loads(variants)[2]
    assert added["objective"]["surrogate"]["eps_high"] == 0.28
    assert added["preset"] == "grpo"
