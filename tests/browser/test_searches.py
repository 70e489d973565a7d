"""Tests of searches in a real browser: launched from the form, followed, compared and stopped."""

import json
import re
from functools import partial

import pytest
from playwright.sync_api import expect
from sqlalchemy import select

from backend.metrics.store import write_points
from backend.storage.models import Attempt, Run
from tests.browser.accessibility import assert_accessible
from tests.browser.service import open_context, viewports
from tests.browser.test_sweeps import launch_page, sweep_in_address
from tests.waiting import wait_for

KNOB = {"path": "optimizer.lr", "values": "1e-5..1e-2 log"}


def launch_search(service, **fields):
    sweep = {"method": "search", "cells": 4, "seed": 1, "knobs": [KNOB], **fields}
    body = {"name": "rates", "base": {"steps": 20}, "variants": [{"name": "grpo"}], "seeds": [0, 1, 2]}
    experiment = service.client.post("/experiments", json=body | {"sweep": sweep}).raise_for_status().json()
    return experiment["id"]


def queued_runs(service, experiment):
    with service.sessions() as session:
        of_it = (Run.experiment_id == experiment, Run.status == "queued")
        return session.scalars(select(Run).where(*of_it).order_by(Run.id)).all()


def finish_run(service, run, value):
    with service.sessions.begin() as session:
        session.add(Attempt(run_id=run.id, number=1, worker_id="w", host="h", from_step=-1))
        session.flush()
        write_points(session, run.id, 1, [(10, {"eval/accuracy": value / 2}), (20, {"eval/accuracy": value})])
        row = session.get_one(Run, run.id)
        row.attempt, row.last_step, row.status = 1, 20, "finished"
        row.summary = {"step": 20, "last": {"eval/accuracy": value}, "best": {}}


def finish_search(service, page, experiment, runs):
    """Finish the runs of a search one after the other as the search queues them."""
    for number in range(runs):
        waiting_runs = wait_for(partial(queued_runs, service, experiment), "the search queued no run")
        finish_run(
            service, waiting_runs[0], (0.3, 0.7, 0.5, 0.6)[number] if number < 4 else 0.5 + number / 40
        )


def test_a_search_is_launched_from_the_form(page, service):
    launch_page(page, base=json.dumps({"steps": 20}), seeds="0,1,2")
    region = page.get_by_role("region", name="Sweep")
    region.get_by_label("Knob to sweep").fill("optimizer.lr")
    region.get_by_role("button", name="Add knob").click()
    region.get_by_label("optimizer.lr", exact=True).fill("1e-5..1e-2 log")
    region.get_by_role("button", name="Search").click()
    expect(region.get_by_role("status")).to_contain_text(
        "At most 12 configurations + 3 × 2 remaining seeds = 18 runs"
    )
    region.get_by_label("configurations at most").fill("4")
    region.get_by_role("button", name="Halving").click()
    region.get_by_label("best to run again").fill("2")
    region.get_by_label("budget in slot hours").fill("2.5")
    expect(region.get_by_role("status")).to_contain_text("= 8 runs")
    region.get_by_label("budget in money").fill("5")
    expect(region.get_by_text("no worker slot has had a price yet")).to_be_visible()
    region.get_by_label("budget in money").fill("")
    search_settings = sweep_in_address(page)["search"]
    assert (
        search_settings["pruner"],
        search_settings["top"],
        search_settings["hours"],
        search_settings["money"],
    ) == ("halving", 2, 2.5, None)
    page.get_by_role("button", name="Launch search").click()
    expect(page).to_have_url(re.compile(r"/experiment/"))
    search = page.get_by_role("region", name="Search")
    expect(search).to_contain_text("1 of at most 4 configurations")
    expect(search).to_contain_text("of 2.5 hours")


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "scheme"), viewports(400, 1400))
def test_a_search_is_followed_to_its_comparison(service, browser, width, scheme):
    experiment = launch_search(service, search={"top": 2})
    context = open_context(browser, service, width, scheme, height=1400)
    page = context.new_page()
    page.goto(f"/experiment/{experiment}?tab=search")
    region = page.get_by_role("region", name="Search")
    expect(region).to_contain_text("No configuration has a valid value yet")
    finish_search(service, page, experiment, 8)
    expect(region).to_contain_text("finished: 4 configurations were tried, as asked", timeout=120_000)
    expect(region.get_by_role("group", name="Configurations").get_by_role("row")).to_have_count(5)
    expect(region.get_by_role("group", name="Final comparison").get_by_role("row")).to_have_count(3)
    expect(region.get_by_role("group", name="Final comparison").get_by_role("row").nth(2)).to_contain_text(
        re.compile(r"\bpaired")
    )
    expect(region).to_contain_text("over 2 remaining seeds")
    expect(region.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("the line is the best so far")
    )
    expect(page.locator(".page-head")).to_contain_text("8 runs")  # it knows the runs queued later
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert_accessible(page, "[aria-labelledby=search-title]")
    launch_page(page, sweep=json.dumps({"method": "search", "cells": 4, "seed": 0, "knobs": [KNOB]}))
    expect(page.get_by_role("region", name="Sweep").get_by_role("status")).to_contain_text("At most 4")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert_accessible(page, ".sweep")
    context.close()


@pytest.mark.nightly
def test_a_search_is_stopped(page, service):
    experiment = launch_search(service)
    page.goto(f"/experiment/{experiment}?tab=search")
    region = page.get_by_role("region", name="Search")
    region.get_by_role("button", name="Stop search").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop search").click()
    expect(region).to_contain_text("stopped: stopped by the user")
    expect(region.get_by_role("button", name="Stop search")).to_have_count(0)
    assert not queued_runs(service, experiment)
