"""Tests of prompts over time: evaluations with a word diff, the atlas, and counts over steps."""

import re

import pytest
from playwright.sync_api import expect

from backend.rollouts.store import pack_groups, write_groups
from tests.browser.payloads import PAYLOADS
from tests.browser.service import HOSTILE, open_context, running_service, viewports
from tests.factories import MadeCompletion, MadeGroup

pytestmark = pytest.mark.nightly

FORGOTTEN_STEP = 40


def completion(is_right, step, text=""):
    answer = text or (f"the sum is {step}, so 2" if is_right else f"the sum is {step}, so 3")
    flags = () if is_right else ("wrong",)
    return MadeCompletion(text=answer, reward=float(is_right), correct=is_right, flags=flags)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("over time")
        service.train(service.trained, 3, end="finished")
        with service.sessions.begin() as session:
            for step in range(10, 61, 10):
                groups = [
                    MadeGroup(
                        kind="eval",
                        prompt=prompt,
                        prompt_index=index,
                        completions=(completion(is_right(step), step),),
                    )
                    for index, (prompt, is_right) in enumerate(
                        [
                            ("1+1=?", lambda step: step < FORGOTTEN_STEP),
                            ("2+2=?", lambda step: step >= 20),
                            (HOSTILE, lambda _: False),
                        ]
                    )
                ]
                train = [
                    MadeGroup(
                        prompt=f"{n}+1=?",
                        prompt_index=n,
                        completions=tuple(completion(k < n, step, PAYLOADS[n * 40 + k]) for k in range(4)),
                        left_out="equal" if n in {0, 4} else "",
                    )
                    for n in range(5)
                ]
                write_groups(session, pack_groups(service.trained, step, 1, [*groups, *train]))
        yield service


@pytest.mark.parametrize(("width", "scheme"), viewports(390, 1440))
def test_a_forgotten_prompt_is_found_and_its_completions_are_compared(browser, service, width, scheme):
    context = open_context(browser, service, width, scheme)
    page = context.new_page()
    page.goto(f"/run/{service.trained}")
    page.get_by_role("tab", name="Evaluations").click()
    page.get_by_label("sort prompts by").select_option("forgotten")
    matrix = page.get_by_role("region", name="Prompts at the evaluations")
    first = matrix.locator("tbody tr").nth(1)
    expect(first).to_contain_text("1+1=?")
    first.get_by_role("button", name=re.compile("^step 30: ")).click()
    first.get_by_role("button", name=re.compile("^step 40: ")).click()
    difference = page.get_by_role("region", name="Difference")
    expect(difference.locator("del")).to_have_text(["30,", "2"])
    expect(difference.locator("ins")).to_have_text(["40,", "3"])
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    context.close()


def test_a_prompt_is_shown_next_to_its_completions_at_other_steps(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&kind=eval&step=30&colour=none")
    page.get_by_role("button", name="Compare", exact=True).click()
    columns = page.get_by_role("region", name="Columns")
    expect(columns.get_by_role("region", name="step 30, in view")).to_contain_text("1 of 1 correct")
    last = columns.get_by_role("region", name="step 60", exact=True)
    expect(last).to_contain_text("0 of 1 correct")
    expect(last.get_by_role("article")).to_contain_text("1+1=?")
    comparison = page.get_by_role("region", name="Comparison of a prompt")
    comparison.get_by_label("add").select_option("step 40")
    expect(columns.get_by_role("region", name="step 40", exact=True)).to_contain_text("the sum is 40, so 3")
    page.reload()
    expect(columns.get_by_role("region", name="step 40", exact=True)).to_be_visible()


def test_prompts_of_the_atlas_can_become_problems_of_a_new_run(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&view=prompts")
    atlas = page.get_by_role("region", name="Prompts over time")
    expect(atlas.locator("tbody tr")).not_to_have_count(0)
    page.get_by_label("show").select_option("never")
    expect(atlas).to_contain_text("0+1=?")
    expect(atlas).not_to_contain_text("4+1=?")
    expect(page.get_by_role("button", name="Launch a run on 1 prompt")).to_be_disabled()
    page.get_by_label("show").select_option("mixed")
    page.get_by_role("button", name="Launch a run on 12 prompts").click()
    page.wait_for_url(re.compile("/launch"))
