"""The signal budget, and planted regressions that are found from a run's page within five clicks each."""

import os
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from playwright.sync_api import expect

from backend.config.signal_budget import PARTS, UNITS, budget_metric
from backend.metrics.store import write_points
from backend.rollouts.store import pack_groups, write_groups
from backend.runs import leases, lifecycle
from backend.storage.models import Run
from backend.storage.rollout_words import index_groups
from tests.browser.payloads import PAYLOADS
from tests.browser.service import completion_of, group_of, opened, running, viewports
from tests.factories import MadeCompletion, MadeGroup

PICTURES = os.environ.get("GRPOLAB_SCREENSHOTS", "")
STEPS = 60
SHARES = (5, 15, 20, 10, 5, 5, 40)


def shoot(page, name):
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)


def answer(prompt, step, index):
    """Three of four are right, with the format's term; some get longer from step 25 on."""
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


def metrics_of(step, groups):
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


def train(service, name, *, with_budget=True):
    rewards = [{"name": "correctness", "weight": 1.0}, {"name": "boxed_format", "weight": 0.2}]
    objective = {"correction": {"type": "token_tis", "cap": 1.5}}
    run = service.launch(name, rewards=rewards, objective=objective)
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "w", "h")
        lifecycle.begin_attempt(session, run, claim.attempt, -1)
        last = {}
        for step in range(1, STEPS + 1):
            prompts = ("2+2=?", "7*8=?", "9-4=?", "6/3=?")
            groups = [
                MadeGroup(
                    prompt=prompt,
                    prompt_index=at,
                    completions=tuple(answer(prompt, step, n) for n in range(4)),
                )
                for at, prompt in enumerate(prompts)
            ]
            last = metrics_of(step, groups)
            if not with_budget:
                last = {metric: value for metric, value in last.items() if "signal/" not in metric}
            write_points(session, run, claim.attempt, [(step, last)])
            write_groups(session, pack_groups(run, step, claim.attempt, groups, with_tokens=False))
        write_groups(session, pack_groups(run, STEPS, claim.attempt, [mismatched()]))
        summary = {"step": STEPS, "last": last, "best": {}}
        leases.fence(session, run, claim.attempt, last_step=STEPS, summary=summary)
        lifecycle.finish_run(session, run, claim.attempt, "finished", "")
    return run


def mismatched():
    """A group of 200 tokens; rho is above 1.5 at a tenth of them."""
    logprob = -np.linspace(0.1, 6, 200, dtype=np.float32)
    log_rho = np.where(np.arange(200) % 10 == 0, 0.7, 0.05 * np.sin(np.arange(200))).astype(np.float32)
    completion = completion_of("x" * 200, correct=True)
    arrays = completion.arrays | {"logprob": logprob, "policy_logprob": logprob + log_rho}
    return replace(group_of("train", STEPS, 9), completions=[replace(completion, arrays=arrays)])


def plant_hostile(service):
    """Fifty prompts a step; terms, too, have names that a log may bring."""
    run = service.launch("hostile")
    with service.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "w", "h")
        lifecycle.begin_attempt(session, run, claim.attempt, -1)
        for step in range(1, 12):
            texts = PAYLOADS[(step - 1) * 50 : step * 50] if step < 11 else PAYLOADS[:50]
            groups = [
                MadeGroup(
                    prompt=text,
                    prompt_index=at,
                    completions=(MadeCompletion(text=text, rewards={text: 1.0}),),
                )
                for at, text in enumerate(texts)
            ]
            write_groups(session, pack_groups(run, step, claim.attempt, groups, with_tokens=False))
            write_points(session, run, claim.attempt, [(step, {"reward/mean": 1.0})])
        summary = {"step": 11, "last": {"reward/mean": 1.0}, "best": {}}
        leases.fence(session, run, claim.attempt, last_step=11, summary=summary)
        lifecycle.finish_run(session, run, claim.attempt, "finished", "")
        session.get_one(Run, run).name = PAYLOADS[0]
    return run


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as service:
        service.trained = train(service, "planted")
        service.older = train(service, "older", with_budget=False)
        service.hostile = plant_hostile(service)
        for _ in index_groups(service.sessions):
            pass
        yield service


class Person:
    """Somebody who opens a run's page and clicks; `clicks` counts."""

    def __init__(self, page, run):
        self.page, self.clicks = page, 0
        page.goto(f"/run/{run}")
        expect(page.get_by_role("region", name="Signal budget")).to_be_visible()

    def click(self, locator):
        self.clicks += 1
        locator.click()

    def why(self, metric):
        """The question mark of a panel."""
        panel = self.page.locator(f'[data-metric="{metric}"]')
        self.click(panel.get_by_role("link", name="Why did this change?"))


def first_row(page):
    return page.get_by_role("group", name="Parts of the change").locator("tbody tr").first


def test_a_forgotten_prompt_is_found_in_two_clicks(page, service):
    person = Person(page, service.trained)
    person.why("reward/accuracy")
    expect(first_row(page)).to_contain_text("7*8=?")
    expect(first_row(page)).to_contain_text("−0.187")  # 3/4 of a quarter of the completions
    person.click(first_row(page).get_by_role("link").last)
    expect(page.locator(".group-list [aria-current=true]")).to_contain_text("7*8=?")
    expect(page.locator(".rollouts")).to_contain_text("The answer to 7*8=? is 0")
    assert person.clicks <= 5


@pytest.mark.nightly
def test_a_broken_reward_term_is_found_in_three_clicks(page, service):
    person = Person(page, service.trained)
    person.why("reward/mean")
    person.click(page.get_by_role("button", name="Reward terms"))
    expect(first_row(page)).to_contain_text("boxed_format")
    expect(first_row(page)).to_contain_text("−0.200")
    person.click(first_row(page).get_by_role("link").last)
    expect(page.locator(".rollouts")).to_contain_text("boxed_format")
    assert person.clicks <= 5


@pytest.mark.nightly
def test_a_phrase_that_spreads_is_found_in_four_clicks(page, service):
    person = Person(page, service.trained)
    person.why("length/mean")
    expect(first_row(page)).to_be_visible()
    person.click(page.get_by_role("button", name="Search", exact=True))
    person.click(page.get_by_role("button", name="Lift", exact=True))
    person.click(page.get_by_role("button", name=re.compile("double check")).first)
    expect(page.locator(".search-result").first).to_contain_text("double check")
    assert person.clicks <= 5


@pytest.mark.nightly
def test_windows_are_typed_and_drawn_and_the_address_holds_them(page, service):
    page.goto(f"/rollouts?run={service.trained}&view=breakdown")
    expect(page.get_by_label("before: steps")).to_have_value("20-29")
    expect(page.get_by_label("after: steps")).to_have_value("30-39")
    page.get_by_label("before: steps").fill("15-24")
    page.get_by_label("before: steps").press("Enter")
    expect(page).to_have_url(re.compile("before=15-24"))
    grip = page.locator(".breakdown-grip")
    grip.hover()  # once it stands still
    box = grip.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.7 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], middle, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile("before=15-24&after=4[1-3]-4[7-9]"))
    page.get_by_label("change of").select_option("length/mean")
    expect(page.get_by_role("region", name="Breakdown of a change")).to_contain_text("length/mean went from")


@pytest.mark.nightly
def test_a_metric_that_cannot_be_told_apart_and_windows_without_values_say_so(page, service):
    page.goto(f"/rollouts?run={service.trained}&view=breakdown&before=500-600&after=1-2")
    expect(page.get_by_role("region", name="Breakdown of a change")).to_contain_text(
        "no finite value at steps 500"
    )


def test_the_budget_adds_up_on_the_page_and_leads_to_completions(page, service):
    page.goto(f"/run/{service.trained}")
    budget = page.get_by_role("region", name="Signal budget")
    for row, share in (("useful", "40.0%"), ("equal, wrong", "20.0%"), ("all", "100.0%")):
        expect(budget.get_by_role("row", name=re.compile(f"^{row}"))).to_contain_text(
            re.compile(share.replace("%", " ?%"))
        )
    budget.get_by_role("button", name="seconds").click()
    bars = budget.get_by_role("group", name="Signal budget by step").get_by_role("button")
    expect(bars).to_have_count(STEPS)
    bars.nth(29).click()
    expect(page).to_have_url(re.compile("step=30"))


@pytest.mark.nightly
def test_a_run_without_a_budget_says_what_is_counted(page, service):
    page.goto(f"/run/{service.older}")
    budget = page.get_by_role("region", name="Signal budget")
    expect(budget).to_contain_text("did not log its budget")
    expect(budget.get_by_role("button", name="seconds")).to_have_count(0)
    page.goto(f"/compare?runs={service.trained},{service.older}")
    rows = page.locator(".budget-rows li")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("from recorded completions")
    page.get_by_role("region", name="Signal budget").get_by_role("button", name="seconds").click()
    expect(rows.nth(1)).to_contain_text("seconds not known")


@pytest.mark.nightly
def test_a_cap_is_tried_on_the_tokens_of_a_step(page, service):
    page.goto(f"/rollouts?run={service.trained}&step={STEPS}")
    page.get_by_text(f"Truncation cap: sampler against trainer at step {STEPS}").click()
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


@pytest.mark.nightly
def test_five_hundred_hostile_prompts_and_terms_are_shown_as_text(page, service):
    shown, codes = set(), 0
    for step in range(1, 11):
        page.goto(f"/rollouts?run={service.hostile}&view=breakdown&before={step}&after={step}")
        prompts = page.locator(".breakdown-prompt")
        expect(prompts).to_have_count(len({text for text in PAYLOADS[(step - 1) * 50 : step * 50] if text}))
        shown |= set(prompts.all_text_contents())
        codes += page.locator(".breakdown-table .code-point").count()
    assert len(shown) > 400  # of 500, some differ by what stands behind 200 characters
    assert codes > 0
    page.goto(f"/rollouts?run={service.hostile}&view=breakdown&before=1-5&after=6-10&split=term")
    expect(page.get_by_role("group", name="Parts of the change").locator("tbody tr")).not_to_have_count(0)
    page.goto(f"/compare?runs={service.hostile},{service.trained}")
    expect(page.locator(".budget-rows li")).to_have_count(2)


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "scheme"), viewports(390, 1024, 1600, 2560))
def test_every_view_fits_every_width(browser, service, width, scheme):
    context = opened(browser, service, width, scheme)
    page = context.new_page()
    for name, path, ready in (
        ("budget", f"/run/{service.trained}", ".budget-table"),
        ("budgets", f"/compare?runs={service.trained},{service.older}", ".budget-rows"),
        ("breakdown", f"/rollouts?run={service.trained}&view=breakdown", ".breakdown-table"),
        ("mismatch", f"/rollouts?run={service.trained}&step={STEPS}", ".mismatch canvas"),
        ("breakdown_term", f"/rollouts?run={service.trained}&view=breakdown&split=term", ".breakdown-table"),
    ):
        page.goto(path)
        if name == "mismatch":
            page.get_by_text("Truncation cap").click()
        expect(page.locator(ready)).to_be_visible()
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"), name
        shoot(page, f"{name}_{width}_{scheme}")
    context.close()
