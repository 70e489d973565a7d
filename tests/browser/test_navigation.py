"""Tests of navigation: experiments and their tabs, the quick jump, and former addresses."""

import re

import pytest
from playwright.sync_api import expect

from backend.storage.models import Experiment
from tests.browser.accessibility import find_barriers
from tests.browser.service import HOSTILE, open_context, running_service, viewports
from tests.browser.watched import watched_page
from tests.factories import make_run

EXPERIMENT_COUNT = 75
RUNS_EACH = 4


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with three hundred runs in 75 experiments, and two trained runs."""
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("first", sampling={"group_size": 4})
        service.train(service.trained, 4, end="finished")
        service.failed = service.launch("second", sampling={"group_size": 8})
        service.train(service.failed, 4, end="failed", reason="out of memory")
        with service.sessions.begin() as session:
            for number in range(EXPERIMENT_COUNT):
                name = HOSTILE if number == EXPERIMENT_COUNT - 1 else f"ablation {number:03d}"
                request = {"variants": [{"name": f"variant {i}"} for i in range(100)], "seeds": [0]}
                experiment = Experiment(
                    id=f"experiment{number:03d}",
                    name=name,
                    request=request,
                    request_hash="",
                    created_at=number,
                )
                session.add(experiment)
                session.flush()
                for seed in range(RUNS_EACH):
                    make_run(
                        session, experiment_id=experiment.id, seed=seed, variant=name[:200],
                        name=f"{name} s{seed}", status="finished", created_at=float(number),
                        sort_eval_accuracy=number / 100,
                    )  # fmt: skip
        service.experiment = service.get(f"/runs/{service.trained}")["experiment"]
        yield service


@pytest.fixture
def page(service, browser):
    with watched_page(browser, service.base) as page:
        page.set_viewport_size({"width": 1440, "height": 900})
        yield page


def menu(page):
    return page.get_by_role("navigation", name="Pages", exact=True)


def quick_jump(page, text):
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Run, experiment, metric, setting or help").fill(text)


def test_two_interactions_lead_from_300_runs_to_an_experiments_first_chart(page):
    page.goto("/runs")
    interactions = [
        lambda: menu(page).get_by_role("link", name="Experiments").click(),
        lambda: page.get_by_role("link", name="first", exact=True).click(),
    ]
    for interact in interactions:
        interact()
    expect(page.get_by_role("heading", name="first", level=1)).to_be_visible()
    expect(page.locator(".panel .js-plotly-plot").first).to_be_in_viewport(ratio=1)
    expect(page).to_have_title("first · GRPO Lab")


def test_three_interactions_show_the_config_difference_of_two_runs(page, service):
    page.goto("/runs")
    names = [service.get(f"/runs/{run}")["name"] for run in (service.trained, service.failed)]
    interactions = [
        *(page.get_by_label(f"Select {name}", exact=True).check for name in names),
        page.get_by_role("button", name="Compare selected").click,
    ]
    for interact in interactions:
        interact()
    difference = page.get_by_role("button", name="differs in sampling.group_size")
    expect(difference).to_have_text(re.compile(r"^differs in sampling\.group_size (4 / 8|8 / 4)$"))
    difference.click()
    expect(page.get_by_role("tab", name="Settings", selected=True)).to_be_visible()
    expect(page.get_by_role("group", name="Config differences")).to_contain_text("sampling.group_size")


def test_experiments_are_searched_by_the_service_and_list_few_of_many_variants(page):
    page.goto("/experiments")
    rows = page.get_by_role("group", name="Experiments").locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older experiments").click()
    expect(rows).to_have_count(EXPERIMENT_COUNT + 2)
    page.get_by_label("Search experiments").fill("ablation 007")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("4 finished")
    expect(rows).to_contain_text("0.070")
    expect(rows).to_contain_text("variant 0, variant 1, variant 2 and 97 more")
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_label("Search experiments").fill("zzqqxx")
    page.get_by_role("button", name="Clear the search").click()
    expect(rows).to_have_count(50)


def test_only_the_open_tab_of_an_experiment_is_built_and_loaded(page, service):
    paths = []
    page.on("request", lambda request: paths.append(request.url))
    page.goto(f"/experiment/{service.experiment}?tab=settings")
    expect(page.get_by_role("heading", name="Config differences")).to_be_visible()
    assert not [url for url in paths if re.search(r"/api/v1/(matrix|series|evaluations|signal-budget)", url)]
    page.get_by_role("tab", name="Settings").press("ArrowLeft")
    expect(page.get_by_role("heading", name="Matrix")).to_be_visible()
    expect(page).to_have_url(re.compile("tab=results"))
    expect(page.get_by_role("heading", name="Config differences")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("heading", name="Config differences")).to_be_visible()


def test_the_quick_jump_finds_runs_experiments_panels_settings_and_help(page, service):
    page.goto(f"/experiment/{service.experiment}")
    expect(page.locator(".panel .js-plotly-plot").first).to_be_visible()
    quick_jump(page, "entropy")
    expect(page.get_by_role("option").first).to_have_text("policy/entropy")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="policy/entropy")).to_be_visible()
    page.keyboard.press("Escape")

    quick_jump(page, "ablation 012 s3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="ablation 012 s3", level=1)).to_be_visible()

    page.get_by_role("button", name="Jump to").click()
    page.keyboard.insert_text("ablation 012")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/experiment/experiment012$"))

    quick_jump(page, "optimizer.lr")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Search settings")).to_have_value("optimizer.lr")
    expect(page.locator("#launch-settings [data-path='optimizer.lr']")).to_be_in_viewport()

    quick_jump(page, "stop_rules.severity")
    help_places = page.get_by_role("group", name="Help")
    expect(help_places.get_by_role("option").first).to_contain_text("stop_rules.severity")
    help_places.get_by_role("option").first.click()
    expect(page).to_have_url(re.compile(r"/help/methods\?find=.*#stop_rules\.severity"))


def test_the_quick_jump_works_with_keys_and_hostile_names(page):
    page.goto("/queue")
    quick_jump(page, "onerror")
    active_option = page.get_by_role("option", selected=True)
    expect(active_option).to_have_count(1)
    field = page.get_by_role("combobox", name="Run, experiment, metric, setting or help")
    first = field.get_attribute("aria-activedescendant")
    page.keyboard.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") != first
    page.keyboard.press("ArrowUp")
    expect(field).to_have_attribute("aria-activedescendant", first)
    assert page.locator(".jump-list img, .jump-list script").count() == 0
    for text in ('" or status = "', "\\", "(((", "not in", "<img src=x>", "\u202e"):
        field.fill(text)
        expect(page.get_by_role("status").filter(has_text=re.compile("choose|Nothing"))).to_be_visible()
        page.wait_for_timeout(250)  # requested after a pause
    field.fill("zzqqxx")
    expect(page.get_by_text("Nothing matches.")).to_be_visible()


def test_former_addresses_and_links_lead_to_one_home_page(page, service):
    page.goto(f"/rollouts?run={service.trained}&step=3&prompt=2")
    expect(page).to_have_url(re.compile(rf"/run/{service.trained}\?tab=rollouts&step=3&prompt=2"))
    expect(page.get_by_role("tab", name="Rollouts", selected=True)).to_be_visible()
    expect(page.locator(".prompt-pick")).to_contain_text("prompt 2")
    page.goto(f"/compare?experiment={service.experiment}&by=run")
    expect(page).to_have_url(re.compile(rf"/experiment/{service.experiment}\?by=run"))
    page.goto("/compare")
    expect(page).to_have_url(re.compile("/experiments$"))


@pytest.mark.parametrize(("width", "scheme"), viewports(390, 1440))
def test_the_pages_fit_and_axe_finds_no_barrier(browser, service, width, scheme):
    context = open_context(browser, service, width, scheme)
    page = context.new_page()
    tabs = [
        f"/experiment/{service.experiment}?tab={tab}" for tab in ("curves", "results", "settings", "signal")
    ]
    comparison_path = f"/compare?runs={service.trained},{service.failed}&tab=results"
    rollouts = [
        f"/run/{service.trained}?tab=rollouts&view={view}" for view in ("search", "breakdown", "prompts")
    ]
    evaluations = f"/run/{service.trained}?tab=evaluations"
    addresses = [
        "/experiments", *tabs, comparison_path, *rollouts, evaluations,
        "/help/search?query=lr", "/queue", "/import",
    ]  # fmt: skip
    complaints = {}
    for address in addresses:
        page.goto(address)
        page.locator("h1").first.wait_for()
        page.get_by_role("button", name="Jump to").wait_for()
        page.wait_for_timeout(800)  # curves are drawn late
        is_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        complaints[address] = [*find_barriers(page), *(["it scrolls sideways"] if is_wide else [])]
    quick_jump(page, "a")
    page.get_by_role("option").first.wait_for()
    complaints["jump"] = [*find_barriers(page)]
    assert complaints == {address: [] for address in complaints}
    context.close()
