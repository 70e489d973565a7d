"""Sweeps and ladders: from the launch form to cells that fill, in a real browser."""

import json
import os
import re
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from backend.runs import leases, lifecycle
from backend.storage.models import Run
from tests.browser.service import HOSTILE, opened, running, viewports
from tests.browser.test_pages import AXE

GRPO = [{"name": "grpo", "preset": "grpo"}]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as service:
        yield service


def launch_page(page, variants=None, **further_fields):
    fields = {"variants": json.dumps(variants or GRPO), "seeds": "0,1"} | further_fields
    page.goto("/launch?" + urlencode(fields))


def swept(page):
    """The sweep in the address."""
    [sweep] = parse_qs(urlsplit(page.url).query)["sweep"]
    return json.loads(sweep)


def finish(service, run_id, accuracy, end="finished"):
    """Leave behind a run that was trained to this accuracy."""
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
    page.get_by_role("button", name="Updates and optimizer").first.click()
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
    expect(page).to_have_url(re.compile(r"/compare\?experiment="))
    cells = page.get_by_role("region", name="Cells")
    expect(cells.get_by_role("row")).to_have_count(4)
    expect(cells.get_by_role("cell")).to_have_count(6)
    expect(cells).to_contain_text("0 of 12 runs finished")
    [experiment] = service.get("/experiments", limit=1)["items"]
    runs = service.get("/runs", experiment=experiment["id"], limit=50)["items"]
    in_turn = sorted(runs, key=lambda run: run["id"])
    assert in_turn[0]["variant"] == "grpo lr=0.0001 group_size=4"
    finish(service, in_turn[0]["id"], 0.25)
    expect(cells).to_contain_text("1 of 12 runs finished")
    expect(cells.get_by_role("cell").first).to_contain_text("0.25")
    expect(cells.get_by_role("cell").first).to_contain_text("1 of 2 seeds")
    finish(service, in_turn[1]["id"], 0.75)
    expect(cells.get_by_role("cell", name="0.75")).to_have_count(1)
    cells.get_by_label("metric").select_option("reward/mean")
    expect(cells.get_by_role("cell", name="-0.75").or_(cells.get_by_text("−0.75"))).to_have_count(1)
    link = cells.get_by_role("cell").first.get_by_role("link").first
    expect(link).to_have_attribute("href", f"/run/{in_turn[0]['id']}")


@pytest.mark.nightly
def test_an_invalid_cell_is_shown_with_its_reason_and_blocks_the_launch(page):
    sweep = {
        "knobs": [{"path": "optimizer.lr", "values": "1e-4, -1"}],
        "method": "grid",
        "cells": 12,
        "seed": 0,
    }
    launch_page(page, sweep=json.dumps(sweep))
    region = page.get_by_role("region", name="Sweep")
    expect(region).to_contain_text("1 cell cannot run")
    expect(region.get_by_role("row").nth(2)).to_contain_text("got -1.0")
    expect(page.get_by_role("button", name="Launch 4 runs")).to_be_disabled()
    region.get_by_label("optimizer.lr", exact=True).fill("1e-5..1e-3 log 1000")
    expect(region.get_by_text("2,000 runs; one experiment may have 500")).to_be_visible()
    region.get_by_label("optimizer.lr", exact=True).fill("1..")
    expect(region.get_by_text("'1..' is not a range")).to_be_visible()
    expect(page.get_by_role("button", name="Launch 0 runs")).to_be_disabled()
    region.get_by_role("button", name="Do not sweep optimizer.lr").click()
    expect(page.get_by_role("button", name="Launch 2 runs")).to_be_enabled()


@pytest.mark.nightly
def test_a_random_sweep_is_drawn_from_its_seed(page):
    launch_page(page)
    page.get_by_role("button", name="Sampling", exact=True).first.click()
    page.locator('[data-path="sampling.temperature"]').first.hover()
    page.get_by_role("button", name="Sweep sampling.temperature").first.click()
    region = page.get_by_role("region", name="Sweep")
    region.get_by_label("sampling.temperature", exact=True).fill("0.6..1.2")
    expect(region.get_by_text("a grid needs a number of values")).to_be_visible()
    region.get_by_role("button", name="Random").click()
    region.get_by_label("cells", exact=True).fill("5")
    region.get_by_label("cells", exact=True).press("Enter")
    expect(region.get_by_role("status")).to_contain_text("5 cells × 2 seeds = 10 runs")
    drawn = region.get_by_role("row").all_inner_texts()
    page.goto(page.url)
    expect(region.get_by_role("row")).to_have_count(6)
    assert region.get_by_role("row").all_inner_texts() == drawn
    assert swept(page)["cells"] == 5


def test_a_hostile_address_and_hostile_values_are_shown_as_text(page):
    launch_page(page, sweep='{"knobs": 5}')
    expect(page.get_by_role("button", name="Launch 2 runs")).to_be_enabled()
    knob = {"path": "policy.revision", "values": HOSTILE.replace("\x07", "").replace(",", "")}
    launch_page(page, sweep=json.dumps({"knobs": [knob], "method": "grid", "cells": 1, "seed": 0}))
    expect(page.get_by_role("region", name="Sweep").get_by_role("row").nth(1)).to_contain_text("<img src=x")


@pytest.mark.nightly
def test_a_ladder_adds_one_knob_at_a_time_in_the_chosen_order(page):
    launch_page(page, [{"name": "dapo", "preset": "dapo"}, *GRPO])
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
    expect(rungs).to_have_count(len(paths) - 1)  # grpo is there, and the last rung is dapo itself
    expect(rungs.first).to_have_text("grpo + eps_high")
    dialog.get_by_role("button", name=re.compile("^Add \\d+ variants?$")).click()
    expect(page.get_by_label("Name of variant 3")).to_have_value("grpo + eps_high")
    [variants] = parse_qs(urlsplit(page.url).query)["variants"]
    added = json.loads(variants)[2]
    assert added["objective"]["surrogate"]["eps_high"] == 0.28
    assert added["preset"] == "grpo"


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "scheme"), viewports(400, 1400))
def test_form_and_cells_are_accessible_and_fit(service, browser, width, scheme):
    context = opened(browser, service, width, scheme, height=1400)
    page = context.new_page()
    rates = {"path": "optimizer.lr", "values": "1e-4, 1e-3, -1"}
    penalties = {"path": "objective.kl.type", "values": "none, k3"}
    sweep = {"method": "grid", "cells": 12, "seed": 0, "knobs": [rates, penalties]}
    launch_page(page, sweep=json.dumps(sweep))
    expect(page.get_by_role("region", name="Sweep")).to_contain_text("cannot run")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    violations_of(page, ".sweep")
    shoot(page, f"form-{width}")
    body = {"name": "grid", "base": {"steps": 5}, "variants": GRPO, "seeds": [0, 1], "sweep": sweep}
    rates["values"] = "1e-4, 1e-3, 3e-3"
    launched = service.client.post("/experiments", json=body).raise_for_status().json()
    for number, run in enumerate(launched["runs"][:7]):
        with service.sessions.begin() as session:
            session.get_one(Run, run["id"]).summary = {"last": {"eval/accuracy": 0.1 * number}, "best": {}}
    page.goto(f"/compare?experiment={launched['id']}")
    expect(page.get_by_role("region", name="Cells").get_by_role("cell").first).to_contain_text("2 seeds")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    violations_of(page, "[aria-labelledby=compare-cells]")
    shoot(page, f"cells-{width}")
    context.close()


def shoot(page, name):
    if directory := os.environ.get("GRPOLAB_SCREENSHOTS"):
        page.screenshot(path=f"{directory}/{name}.png", full_page=True)


def violations_of(page, where):
    page.evaluate(f"() => {{ const trustedTypes = undefined; {AXE} }}")
    barriers = page.evaluate("where => axe.run(where)", where)["violations"]
    assert [(barrier["id"], barrier["nodes"][0]["html"]) for barrier in barriers] == []
