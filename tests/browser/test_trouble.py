"""Tests of pages during a database outage and afterwards."""

import time

import pytest
from playwright.sync_api import expect, sync_playwright

from backend.base.settings import Settings
from backend.service.monitoring.backlog import Note, note_path, remove_note, write_note
from tests.browser.conftest import ARGUMENTS
from tests.browser.service import TOKEN, running_service
from tests.outages import postgres_to_stop

pytestmark = pytest.mark.nightly


@pytest.fixture
def postgres(shared):
    with postgres_to_stop(shared) as server:
        yield server


@pytest.fixture
def service(tmp_path, postgres):
    with running_service(tmp_path, postgres.url) as service:
        service.waiting = service.launch("waiting")
        yield service


@pytest.fixture
def page(service, chromium):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
        context = browser.new_context(
            base_url=service.base, extra_http_headers={"Authorization": f"Bearer {TOKEN}"}
        )
        page = context.new_page()
        page.set_default_timeout(120_000)
        yield page
        browser.close()


def test_a_page_reports_a_database_outage_and_recovers(page, service, postgres, tmp_path):
    name = service.get(f"/runs/{service.waiting}")["name"]
    page.goto("/runs")
    expect(page.get_by_role("link", name=name)).to_be_visible()
    postgres.stop()
    banner = page.get_by_text("The database does not answer, since")
    expect(banner).to_be_visible(timeout=120_000)
    expect(page.get_by_role("link", name=name)).to_be_visible()
    note = note_path(Settings(state_dir=tmp_path), service.waiting)
    write_note(note, Note(service.waiting, time.time() - 34, 12, is_held=False, reason="it does not answer"))
    expect(page.get_by_text("1 run with 12 steps not yet stored.")).to_be_visible(timeout=120_000)
    page.goto(f"/run/{service.waiting}")
    expect(page.get_by_role("alert")).to_contain_text("the database does not answer")
    postgres.start()
    expect(page.get_by_role("heading", name=name)).to_be_visible(timeout=120_000)
    expect(banner).to_be_hidden(timeout=120_000)
    expect(page.get_by_text("12 steps not yet stored; training continues")).to_be_visible()
    remove_note(note)
    expect(page.get_by_text("12 steps not yet stored; training continues")).to_be_hidden(timeout=120_000)
