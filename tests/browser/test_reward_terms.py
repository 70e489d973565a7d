"""Tests of reward terms in the launch form: their fields, and a judge that is not configured."""

import json
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.browser.service import HOSTILE, open_context, viewports

pytestmark = pytest.mark.nightly

REWARD_TERMS = [
    {"name": "correctness"},
    {"name": "code", "credit": "share", "domain": "math"},
    {"name": "judge", "rubric": HOSTILE, "criterion": "helpfulness"},
    {"name": "reward_model", "per": "step"},
]


@pytest.mark.parametrize(("width", "scheme"), viewports(400, 1400))
def test_the_form_shows_the_terms_and_refuses_an_unconfigured_judge(service, browser, width, scheme):
    context = open_context(browser, service, width, scheme, height=1400)
    page = context.new_page()
    alerts = []

    def dismiss(dialog):
        alerts.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.goto("/launch?" + urlencode({"base": json.dumps({"rewards": REWARD_TERMS})}))
    refusal = page.get_by_text("needs a server that is not configured: the operator must set JUDGE_URL").first
    expect(refusal).to_be_visible()
    expect(page.get_by_text("the operator must set REWARD_MODEL_URL").first).to_be_visible()
    assert alerts == []
    context.close()
