"""Tests of a check before launch, from the form to the result and the launch, in a real browser."""

import json
import re
import threading
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect
from sqlalchemy import select

from backend.config.merge import merge
from backend.runs import lifecycle
from backend.storage.models import Run
from tests.browser.accessibility import assert_accessible
from tests.browser.service import HOSTILE, NARROW_VIEWPORT, WIDE_VIEWPORT, open_context, running_service
from worker.train import Assignment, train_run


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A state directory with a dataset that has a wrong reference answer."""
    directory = tmp_path_factory.mktemp("lab")
    (directory / "datasets").mkdir()
    rows = [{"prompt": f"{n}+1=?", "answer": str(n + 1), "split": "train"} for n in range(8)]
    rows += [{"prompt": HOSTILE, "answer": "}<img src=x onerror=alert(1)>", "split": "train"}]
    rows += [{"prompt": "70+7=?", "answer": "77", "split": "eval"}]
    rows += [{"prompt": " 70 + 7 = ?", "answer": "77", "split": "train", "id": "<b>twice</b>"}]
    (directory / "datasets" / "broken.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


@pytest.fixture(scope="module")
def service(directory):
    with running_service(directory) as service:
        yield service


@pytest.fixture(params=[NARROW_VIEWPORT, WIDE_VIEWPORT], ids=str)
def page(request, service, browser):
    width, scheme = request.param
    context = open_context(browser, service, width, scheme, height=1400)
    page = context.new_page()
    alerts = []

    def dismiss(dialog):
        alerts.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    yield page
    context.close()
    assert alerts == []


@pytest.fixture
def perform_checks(service, directory, monkeypatch):
    """A function that performs the queued checks like a worker, with fewer completions."""
    monkeypatch.setenv("STATE_DIR", str(directory))
    monkeypatch.setenv("DATASETS_DIR", str(directory / "datasets"))

    def perform():
        with service.sessions.begin() as session:
            run = session.scalars(
                select(Run).where(Run.status == "queued", Run.check_hash.is_not(None))
            ).one()
            run.config = merge(run.config, {"evaluation": {"prompts": 4, "k": 8}})
            run.priority = 1
        with service.sessions.begin() as session:
            claim = lifecycle.claim_run(session, "test-worker", "test-host")
            url = session.bind.engine.url.render_as_string(hide_password=False)
        train_run(Assignment(claim.run_id, claim.attempt, "cpu", 1, url), threading.Event())

    return perform


def launch_page(page, **base):
    variants = [{"name": "GRPO", "preset": "grpo"}]
    query = {"base": json.dumps(base), "variants": json.dumps(variants), "seeds": "0"}
    page.goto("/launch?" + urlencode(query))
    expect(page.get_by_text("checked by the server")).to_be_visible()


def test_a_config_is_checked_and_then_launched(page, perform_checks):
    launch_page(page, sampling={"max_new_tokens": 40})
    page.get_by_role("button", name="Check first").click()
    result = page.get_by_role("region", name="Check before launch")
    expect(result).to_contain_text("waits for a worker")
    expect(page.get_by_role("button", name="Check first")).to_be_disabled()
    perform_checks()
    expect(result).to_contain_text("The grader accepts all 256 reference answers.")
    expect(result).to_contain_text("from 4 training prompts with 8 completions each")
    expect(result.get_by_role("table", name="Expected signal by group size")).to_contain_text("8 (yours)")
    expect(result.get_by_role("row", name="The format alone")).to_contain_text("0")
    forms = result.get_by_role("table", name="Forms of the prompt")
    expect(forms.get_by_role("row")).to_have_count(4)
    expect(forms).to_contain_text("Chat, asked for a box")
    result.get_by_text("The first prompt as the policy reads it").click()
    expect(result.get_by_label("First prompt")).to_contain_text("=?")
    assert_accessible(page, ".launch-box")
    page.reload()
    expect(result).to_contain_text("The grader accepts all 256 reference answers.")
    page.get_by_role("button", name="Launch 1 run").click()
    expect(page).to_have_url(re.compile(r"/experiment/"))


@pytest.mark.nightly
def test_a_wrong_reference_answer_refuses_the_launch_until_confirmed(page, perform_checks, service):
    problems = [{"name": "file", "path": "broken.jsonl"}]
    launch_page(page, sampling={"max_new_tokens": 40}, problems=problems)
    page.get_by_role("button", name="Check first").click()
    result = page.get_by_role("region", name="Check before launch")
    expect(result).to_contain_text("waits for a worker")
    perform_checks()
    expect(result).to_contain_text("The grader calls 1 of 10 reference answers wrong")
    expect(result).to_contain_text("}<img src=x onerror=alert(1)>")
    expect(result).to_contain_text(
        "1 of 10 training rows of file:broken.jsonl overlap with held-out questions"
    )
    result.get_by_text("Training rows of file:broken.jsonl that overlap").click()
    expect(result).to_contain_text("file:broken.jsonl/<b>twice</b>")
    page.get_by_role("button", name="Launch 1 run").click()
    expect(page.locator(".launch-failure")).to_contain_text("1 of 10 reference answers wrong")
    page.get_by_label("Launch even though reference answers are graded wrong").check()
    page.get_by_role("button", name="Launch 1 run").click()
    expect(page).to_have_url(re.compile(r"/experiment/"))

    run = service.get("/runs", tag="check")["items"][0]
    page.goto(f"/run/{run['id']}")
    report = page.get_by_role("region", name="Check before launch")
    expect(report).to_contain_text("The grader calls 1 of 10 reference answers wrong")
    page.get_by_role("link", name="View completions").click()
    expect(page.locator("article.rollout").first).to_be_visible()
