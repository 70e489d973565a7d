"""Tests of the signal budget, and of planted regressions that can be found within five clicks."""

import re
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from playwright.sync_api import expect

from backend.config.signal_budget import PARTS, UNITS, budget_metric
from backend.metrics.store import write_points
from backend.rollouts.store import pack_groups, write_groups
from backend.runs import leases, lifecycle
from backend.storage.rollout_words import index_groups
from tests.browser.service import make_completion, make_group, running_service
from tests.factories import MadeCompletion, MadeGroup

STEP_COUNT = 60
SHARES = (5, 15, 20, 10, 5, 5, 40)


def answer(prompt, step, index):
    """Return completions of which three in four are right, and some get longer from step 25 on."""
    is_right = index < 3 and not (prompt == "7*8=?" and step >= 40)
    has_format = step < 30
    spread = " Let me double check that result." if step >= 25 and index < 2 else ""
    return MadeCompletion(
        text=f"The answer to {prompt} is {index}.{spread}",
        reward=float(is_right) + 0.2 * has_format,
        rewards={"correctness": float(is_right), "boxed_format": float(has_format)},
        correct=is_right,
        flags=() if is_right else ("wrong",),
    )


def make_metrics(step, groups):
    completions = [completion for group in groups for completion in group.completions]
    seconds = {
        budget_metric(use, unit): share * scale * (1 + (step % 7) / 10)
        for unit, scale in zip(UNITS, (1, 12, 0.2), strict=True)
        for use, share in zip(PARTS, SHARES, strict=True)
    }
    return seconds | {
        "reward/mean": fmean(completion.reward for completion in completions),
        "reward/accuracy": fmean(completion.correct for completion in completions),
        "reward/boxed_format/mean": fmean(completion.rewards["boxed_format"] for completion in completions),
        "length/mean": fmean(len(completion.text) for completion in completions),
    }


def train_run(service, name):
    rewards = [{"name": "correctness", "weight": 1.0}, {"name": "boxed_format", "weight": 0.2}]
    objective = {"correction": {"type": "token_tis", "cap": 1.5}}
    run = service.launch(name, rewards=rewards, objective=objective)
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "w", "h")
        lifecycle.begin_attempt(session, run, claim.attempt, -1)
        last = {}
        for step in range(1, STEP_COUNT + 1):
            prompts = ("2+2=?", "7*8=?", "9-4=?", "6/3=?")
            groups = [
                MadeGroup(
                    prompt=prompt,
                    prompt_index=prompt_index,
                    completions=tuple(answer(prompt, step, n) for n in range(4)),
                )
                for prompt_index, prompt in enumerate(prompts)
            ]
            last = make_metrics(step, groups)
            write_points(session, run, claim.attempt, [(step, last)])
            write_groups(session, pack_groups(run, step, claim.attempt, groups, with_tokens=False))
        write_groups(session, pack_groups(run, STEP_COUNT, claim.attempt, [mismatched_group()]))
        summary = {"step": STEP_COUNT, "last": last, "best": {}}
        leases.fence(session, run, claim.attempt, last_step=STEP_COUNT, summary=summary)
        lifecycle.finish_run(session, run, claim.attempt, "finished", "")
    return run


def mismatched_group():
    """Return a group of 200 tokens, of which a tenth have rho above 1.5."""
    logprob = -np.linspace(0.1, 6, 200, dtype=np.float32)
    log_rho = np.where(np.arange(200) % 10 == 0, 0.7, 0.05 * np.sin(np.arange(200))).astype(np.float32)
    completion = make_completion("x" * 200, correct=True)
    arrays = completion.arrays | {"logprob": logprob, "policy_logprob": logprob + log_rho}
    return replace(make_group("train", STEP_COUNT, 9), completions=[replace(completion, arrays=arrays)])


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = train_run(service, "planted")
        for _ in index_groups(service.sessions):
            pass
        yield service


class Visitor:
    """A person who opens a run's page and clicks, which `clicks` counts."""

    def __init__(self, page, run):
        self.page, self.clicks = page, 0
        page.goto(f"/run/{run}")
        expect(page.get_by_role("region", name="Signal budget")).to_be_visible()

    def click(self, locator):
        self.clicks += 1
        locator.click()

    def why(self, metric):
        """Click the question mark of a panel."""
        panel = self.page.locator(f'[data-metric="{metric}"]')
        self.click(panel.get_by_role("link", name="Why did this change?"))


def first_row(page):
    return page.get_by_role("group", name="Parts of the change").locator("tbody tr").first


def test_a_forgotten_prompt_is_found_in_two_clicks(page, service):
    person = Visitor(page, service.trained)
    person.why("reward/accuracy")
    expect(first_row(page)).to_contain_text("7*8=?")
    expect(first_row(page)).to_contain_text("−0.187")  # 3/4 of a quarter of the completions
    person.click(first_row(page).get_by_role("link").last)
    expect(page.locator(".group-list [aria-current=true]")).to_contain_text("7*8=?")
    expect(page.locator(".rollouts")).to_contain_text("The answer to 7*8=? is 0")
    assert person.clicks <= 5


@pytest.mark.nightly
def test_a_broken_reward_term_is_found_in_three_clicks(page, service):
    person = Visitor(page, service.trained)
    person.why("reward/mean")
    person.click(page.get_by_role("button", name="Reward terms"))
    expect(first_row(page)).to_contain_text("boxed_format")
    expect(first_row(page)).to_contain_text("−0.200")
    person.click(first_row(page).get_by_role("link").last)
    expect(page.locator(".rollouts")).to_contain_text("boxed_format")
    assert person.clicks <= 5


@pytest.mark.nightly
def test_a_phrase_that_spreads_is_found_in_four_clicks(page, service):
    person = Visitor(page, service.trained)
    person.why("length/mean")
    expect(first_row(page)).to_be_visible()
    person.click(page.get_by_role("button", name="Search", exact=True))
    person.click(page.get_by_role("button", name="Lift", exact=True))
    person.click(page.get_by_role("button", name=re.compile("double check")).first)
    expect(page.locator(".search-result").first).to_contain_text("double check")
    assert person.clicks <= 5


def test_the_budget_adds_up_on_the_page_and_links_to_completions(page, service):
    page.goto(f"/run/{service.trained}")
    budget = page.get_by_role("region", name="Signal budget")
    for row, share in (("useful", "40.0%"), ("equal, wrong", "20.0%"), ("all", "100.0%")):
        expect(budget.get_by_role("row", name=re.compile(f"^{row}"))).to_contain_text(
            re.compile(share.replace("%", " ?%"))
        )
    budget.get_by_role("button", name="seconds").click()
    bars = budget.get_by_role("group", name="Signal budget by step").get_by_role("button")
    expect(bars).to_have_count(STEP_COUNT)
    bars.nth(29).click()
    expect(page).to_have_url(re.compile("step=30"))


@pytest.mark.nightly
def test_a_cap_can_be_tried_on_the_tokens_of_a_step(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&step={STEP_COUNT}")
    page.get_by_text(f"Truncation cap: sampler against trainer at step {STEP_COUNT}").click()
    numbers = page.locator(".mismatch-numbers")
    expect(numbers).to_contain_text(re.compile(r"tokens truncated\s*10\.00 ?%"))
    expect(page.locator(".mismatch-cap")).to_contain_text("the run's own")
    page.get_by_label("Cap", exact=True).press("End")
    expect(numbers).to_contain_text(re.compile(r"tokens truncated\s*0\.00 ?%"))
    page.get_by_role("button", name="Back to 1.500").click()
    expect(numbers).to_contain_text(re.compile(r"tokens truncated\s*10\.00 ?%"))
    page.locator(".mismatch-tools").get_by_label("correction").select_option("token_mask")
    expect(numbers).to_contain_text("tokens dropped")
    page.locator(".mismatch-tools").get_by_label("colour by").select_option("age")
    painted = page.locator(".mismatch canvas").evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0)"
    )
    assert painted
