"""Tests of a run that another trainer pushes, in a real browser: live, readable, and stoppable."""

import sys
from functools import partial

import pytest
from playwright.sync_api import expect, sync_playwright
from sqlalchemy import update

from backend.base.settings import Settings
from backend.http.auth.tokens import writer_token
from backend.storage.models import Run
from tests.backend.exchange.push.conftest import load_client
from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import ARGUMENTS
from tests.browser.service import running_service
from tests.browser.watched import watched_page
from tests.waiting import wait_for

HOSTILE_TEXT = "<img src=x onerror=__hit(1)>"


@pytest.fixture
def push_service(tmp_path):
    with running_service(tmp_path, writes_per_second=0) as service:
        yield service


@pytest.fixture
def pushed(push_service, tmp_path, monkeypatch):
    client = load_client()
    monkeypatch.setattr(client, "HEARTBEAT_SECONDS", 3600.0)  # only its records are received
    run = client.init(
        push_service.base, writer_token(Settings(state_dir=tmp_path), "node-7"),
        name=f"pushed {HOSTILE_TEXT}", origin="trl", steps=40, directory=tmp_path / "spool",
    )  # fmt: skip
    for step in range(1, 15):
        run.log({"reward": step / 40, HOSTILE_TEXT: step}, step=step)
        run.log_completions([{"prompt": "1+1=", "completion": HOSTILE_TEXT, "reward": 1.0}] * 2, step=step)
    yield run
    run.finish()
    sys.modules.pop("grpolab")


def test_a_pushed_run_is_live_and_its_stop_button_works(push_service, pushed, chromium):
    def has_step(step):
        runs = push_service.get("/runs")["items"]
        return runs[0]["id"] if runs and runs[0]["last_step"] >= step else None

    run_id = wait_for(partial(has_step, 14), "the run was not pushed")
    address = f"/run/{run_id}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
        with watched_page(browser, push_service.base) as page:
            page.goto("/import")
            expect(page.get_by_label("On the training machine")).to_contain_text(
                f"curl -O {push_service.base}/grpolab.py"
            )
            assert_accessible(page)
            page.goto(address)
            expect(page.locator(".run-origin")).to_have_text("Pushed by TRL, writer node-7")
            expect(page.locator(".run-advance")).to_contain_text("step 14 of 40")
            expect(page.get_by_role("button", name="Pause")).to_have_count(0)
            pushed.log({"reward": 0.5}, step=20)
            expect(page.locator(".run-advance")).to_contain_text("step 20 of 40")
            page.get_by_role("tab", name="Rollouts").click()
            expect(page.get_by_text(HOSTILE_TEXT).first).to_be_visible()
            page.get_by_role("button", name="Stop").click()
            page.get_by_role("dialog").get_by_role("button", name="Stop").click()
            expect(page.get_by_role("button", name="Keep running")).to_be_visible()
            pushed.log({"reward": 0.5}, step=21)
            # Step 21 has arrived, so the trainer's last message cannot be later than now.
            wait_for(lambda: pushed.should_stop() and has_step(21))
            with push_service.sessions.begin() as session:
                session.execute(update(Run).values(progress_at=Run.progress_at - 300))
            page.goto(address)
            expect(page.locator(".run-silent")).to_contain_text("Its trainer was last heard from 5 min ago")
            expect(page.get_by_role("button", name="Stop")).to_be_visible()
            pushed.log({"reward": 0.5}, step=22)  # its script continues nevertheless
            expect(page.locator(".run-advance")).to_contain_text("step 22 of 40")
            page.goto(address)
            page.get_by_role("button", name="Stop now").click()
            expect(page.get_by_role("dialog")).to_contain_text("was asked to stop and still pushes")
            page.get_by_role("dialog").get_by_role("button", name="Stop").click()
            expect(page.get_by_role("button", name="Stop now")).to_have_count(0)
            assert push_service.get(f"/runs/{run_id}")["status"] == "stopped"
        browser.close()
