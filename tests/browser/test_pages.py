"""Tests of the launch, run and rollouts pages in a real browser on the real service."""

import json
import re
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from backend.runs.events import add_event
from tests.browser.accessibility import find_barriers
from tests.browser.service import running_service


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("trained")
        service.train(service.trained, 4, end="finished")
        service.failed = service.launch("failed", optimizer={"lr": 0.5})
        service.train(service.failed, 1, end="failed", reason="out of memory: 12 GiB asked, 8 GiB there")
        service.waiting = service.launch("waiting")
        yield service


def field(page: Page, path: str):
    return page.locator(f"[data-path='{path}']").first


def launch_page(page: Page) -> None:
    page.goto("/launch")
    expect(page.get_by_text("checked by the server")).to_be_visible()


def test_an_error_is_shown_at_its_field_in_the_servers_words(page, service):
    launch_page(page)
    page.get_by_role("button", name="Ratio and clip").first.click()
    field(page, "objective.surrogate.eps_high").locator("input").fill("-1")
    surrogate = {"type": "ppo_clip", "eps_high": -1}
    body = {"base": {}, "variant": {"preset": "grpo", "objective": {"surrogate": surrogate}}}
    [error] = service.client.post("/validate", json=body).json()["errors"]
    expect(field(page, "objective.surrogate.eps_high").locator(".form-errors")).to_have_text(error["message"])
    expect(page.get_by_role("button", name="Launch 3 runs")).to_be_disabled()


def test_only_essentials_and_changes_are_shown_by_default(page):
    launch_page(page)
    expect(field(page, "objective.kl.coef").locator("input")).to_have_value("0.04")
    page.get_by_label("Search settings").fill("trust region")
    expect(field(page, "updates.rule")).to_be_visible()
    expect(field(page, "updates.trust")).to_have_count(0)
    field(page, "updates.rule").locator("select").select_option("natural_gradient")
    expect(field(page, "updates.trust.delta")).to_be_visible()
    page.get_by_role("button", name=": updates.rule").first.click()
    expect(field(page, "updates.trust")).to_have_count(0)
    page.get_by_label("Search settings").fill("")
    expect(field(page, "objective.surrogate.eps_high")).to_have_count(0)
    page.get_by_role("button", name="Ratio and clip").first.click()
    field(page, "objective.surrogate.eps_high").locator("input").fill("0.28")
    page.get_by_role("button", name="Ratio and clip").first.click()
    expect(field(page, "objective.surrogate.eps_high").locator("input")).to_have_value("0.28")


def test_six_interactions_launch_three_methods_on_a_new_file_with_a_new_learning_rate(page, service):
    page.set_viewport_size({"width": 390, "height": 844})
    launch_page(page)
    rows = "\n".join(json.dumps({"prompt": f"{n}+1=?", "answer": n + 1}) for n in range(40))
    file = {"name": "own.jsonl", "mimeType": "application/jsonl", "buffer": rows.encode()}

    def press(name: str) -> Callable[[], None]:
        return lambda: page.get_by_role("button", name=name, exact=True).click()

    interactions = [
        lambda: page.get_by_label("File to upload").set_input_files(file),
        press("Upload this file"),
        press("Dr. GRPO"),
        press("DAPO"),
        lambda: page.get_by_label("Learning rate").fill("1e-4"),
        press("Launch 9 runs"),
    ]
    for interact in interactions:
        expect(page.get_by_role("button", name=re.compile("^Launch"))).to_be_in_viewport()
        interact()
    page.wait_for_url("**/experiment/*")
    runs = service.get("/runs", experiment=page.url.rpartition("/")[2], include="config")["items"]
    assert sorted((run["variant"], run["seed"]) for run in runs) == [
        (variant, seed) for variant in ("dapo", "dr_grpo", "grpo") for seed in (0, 1, 2)
    ]
    assert {run["config"]["optimizer"]["lr"] for run in runs} == {1e-4}
    assert {tuple(problem["name"] for problem in run["config"]["problems"]) for run in runs} == {("file",)}
    assert {run["config"]["preset"] for run in runs if run["variant"] == "dapo"} == {"dapo"}


def test_the_legend_explains_the_formula_of_a_variant(page):
    page.goto(
        "/launch?" + urlencode({"variants": json.dumps([{"name": "magistral", "preset": "magistral"}])})
    )
    objective = page.get_by_role("complementary", name="Objective of magistral")
    page.get_by_text("Objective and notes").click()
    expect(objective.get_by_text("judged before length_penalty")).to_be_visible()
    meaning = objective.get_by_text("what length takes off the reward")
    expect(meaning).to_be_hidden()
    objective.get_by_text("What the symbols mean").click()
    expect(meaning).to_be_visible()
    entry = objective.locator("dl > div", has=page.get_by_text("rewards of all completions of i's prompt"))
    expect(entry.locator("dt math")).to_have_text("Rgroup")


def test_a_failed_run_shows_its_reason_and_can_be_retried(page, service):
    page.goto(f"/run/{service.failed}")
    expect(page.get_by_role("alert")).to_contain_text("out of memory: 12 GiB asked, 8 GiB there")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


def test_notes_tags_and_trash_are_on_the_page_of_the_run(page, service):
    run = service.launch("to be annotated")
    name = service.get(f"/runs/{run}")["name"]
    page.goto(f"/run/{run}")

    def choose(item):
        page.get_by_role("button", name="More").click()
        page.get_by_role("button", name=item, exact=True).click()

    choose("Notes…")
    field = page.get_by_role("dialog").get_by_label("Notes")
    for length in (20_001, 20_000):
        field.fill("😀" * length)
        page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert service.get(f"/runs/{run}")["notes"] == "😀" * 20_000
    page.get_by_role("button", name="Edit notes").click()
    field.fill("<b>lr</b> too high?\nSeed 3 fell first.")
    page.get_by_role("button", name="Save").click()
    notes = page.get_by_role("region", name="Notes")
    expect(notes.get_by_role("group")).to_have_text(
        "<b>lr</b> too high?\nSeed 3 fell first.", use_inner_text=True
    )

    choose("Tags…")
    page.get_by_role("dialog").get_by_label("Tag").fill("baseline")
    page.keyboard.press("Enter")
    expect(page.locator(".run-line").get_by_text("baseline")).to_be_visible()

    choose("Archive")
    expect(page.get_by_text("1 run archived")).to_be_visible()
    choose("Unarchive")
    expect(page.get_by_text("1 run unarchived")).to_be_visible()
    choose("Move to trash")
    expect(page.get_by_text("This run is in the trash.")).to_be_visible()
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_text("This run is in the trash.")).to_have_count(0)
    run_json = service.get(f"/runs/{run}")
    assert (run_json["name"], run_json["tags"], run_json["archived"], run_json["deleted"]) == (
        name,
        ["baseline"],
        False,
        False,
    )


def test_a_diagnosis_stop_rule_is_built_in_the_form(page):
    launch_page(page)
    page.get_by_label("Search settings").fill("stop_rules")
    page.get_by_label("Add to stop_rules").select_option("diagnosis")
    item = page.locator("[data-path='stop_rules'] .form-item").nth(1)
    item.get_by_role("button", name="more fields").click()
    item.get_by_label("severity", exact=True).select_option("warning")
    for cause in ("kl_pull", "update_size", "verifier"):
        item.get_by_label(cause).check()
    item.get_by_label("verifier", exact=True).uncheck()
    expect(page.get_by_text("checked by the server")).to_be_visible()
    page.locator("details.result > summary").click()
    expect(page.locator("details.result pre").first).to_contain_text("causes: [update_size, kl_pull]")
    expect(page.locator("details.result pre").first).to_contain_text("severity: warning")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1400, 400])
def test_an_adapter_is_chosen_in_the_policy_card(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/launch")
    card = page.get_by_role("region", name="Policy")
    card.get_by_text("LoRA and precision").click()
    card.get_by_label("adapter", exact=True).select_option("lora")
    card.get_by_label("rank", exact=True).fill("8")
    page.locator("details.result > summary").click()
    expect(page.locator("details.result pre").first).to_contain_text("rank: 8")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_stopping_asks_for_confirmation(page, service):
    run = service.launch("to be stopped")
    page.goto(f"/run/{run}")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Cancel").click()
    assert service.get(f"/runs/{run}")["status"] == "queued"
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert service.get(f"/runs/{run}")["status"] == "stopped"


def test_the_tabs_of_a_run_show_what_was_recorded(page, service):
    page.goto(f"/run/{service.trained}")
    expect(page.get_by_role("region", name="reward/mean")).to_be_visible()
    for tab, text in (
        ("Config", "preset"),
        ("Events", "running -> finished"),
        ("Log", "step 1\nstep 2\nred"),
        ("Files", "model.safetensors"),
        ("Charts", "optim/grad_norm"),
    ):
        page.get_by_role("tab", name=tab).click()
        if tab == "Config":
            page.get_by_label("Only changes from the defaults").uncheck()
        if tab == "Files":
            page.get_by_role("tabpanel").locator("summary").first.click()
        expect(page.get_by_role("tabpanel")).to_contain_text(text, use_inner_text=True)


def test_completions_are_shown_as_plain_text(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&step=3&prompt=3&colour=none")
    completion = page.get_by_role("group", name="Completion 0")
    expect(completion).to_contain_text('<img src=x onerror="alert(1)"><script>alert(2)</script>')
    for code in ("U+202E", "U+200B", "U+0007"):
        expect(completion.get_by_text(code)).to_be_visible()
    assert completion.locator("img, script").count() == 0


def test_a_token_shows_its_numbers(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&step=3")
    token = page.locator("[data-token='2']").first
    expect(token).to_have_class("token heat-3")
    box = token.bounding_box()
    token.hover()
    expect(page.locator(".readout")).to_contain_text("logprob −2")
    assert token.bounding_box() == box, "nothing moves under the pointer"
    page.mouse.move(0, 0)  # from here on, only the keyboard is used
    page.get_by_role("group", name="Completion 0").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("Completion 0, token")
    token_number = int(
        re.search(r"Completion 0, token (\d+)", page.locator(".readout").inner_text()).group(1)
    )
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text(f"Completion 0, token {token_number + 1}")


def test_a_pinned_token_has_an_address_and_all_values(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&step=3&colour=loss")
    page.locator("[data-completion] [data-token='2']").first.click()
    expect(page).to_have_url(re.compile(r"[?&]at=\d\.2"))
    page.reload()
    readout = page.locator(".readout")
    for text in ("token 3", "ratio", "clipped no", "loss", "gradient", "mismatch 0", "advantage"):
        expect(readout).to_contain_text(text)
    expect(readout.get_by_role("button", name="Copy link")).to_be_visible()


@pytest.mark.nightly
def test_a_changed_knob_is_compared_with_the_runs_objective_and_in_the_address(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&step=3")
    page.get_by_text("What if: step 3").click()
    panel = page.locator(".what-if")
    panel.get_by_role("button", name="Aggregation").click()
    panel.locator("[data-path='objective.aggregation'] select").first.select_option("seq_mean_token_sum")
    panel.get_by_role("button", name="Compute with these knobs").click()
    expect(page.locator(".what-if-table thead")).to_contain_text("changed")
    assert "knobs=" in page.url
    page.reload()
    expect(page.locator(".what-if-table thead")).to_contain_text("changed")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".what-if-table")).to_have_count(0)


def test_a_filter_keeps_matching_rows(page, service):
    page.goto(f"/run/{service.trained}?tab=rollouts&step=2")
    expect(page.get_by_role("article")).to_have_count(2)
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("button", name="wrong").click()
    expect(page.get_by_role("article")).to_have_count(1)
    expect(page.get_by_text("1 of 2 completions shown")).to_be_visible()
    page.get_by_label("reward ≥").fill("0.5")
    page.keyboard.press("Tab")
    expect(page.get_by_text("of step 2 passes the filter")).to_be_visible()


@pytest.mark.nightly
def test_axe_finds_no_barrier_on_the_pages(page, service):
    addresses = [
        "/launch?scope=0&open=Rewards,Budget,Ratio and clip",
        f"/run/{service.trained}",
        f"/run/{service.failed}",
        f"/run/{service.trained}?tab=files",
        f"/launch?from={service.trained}&fork={service.trained}",
        f"/run/{service.trained}?tab=log",
        f"/run/{service.trained}?tab=rollouts&step=3&prompt=3",
        f"/run/{service.trained}?tab=evaluations",
    ]
    barriers = {address: violations(page, address) for address in addresses}
    assert barriers == {address: [] for address in addresses}


def violations(page, address):
    """Return all violations in light mode, and those of colours in dark mode, since nothing else changes."""
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.locator("h1").first.wait_for()
    page.wait_for_timeout(1000)  # curves and tokens are drawn late
    barriers = find_barriers(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    return barriers + find_barriers(page, options={"runOnly": ["color-contrast"]})


def test_a_deleted_run_is_found_in_the_trash_and_restored(page, service):
    run = service.launch("to be deleted")
    name = service.get(f"/runs/{run}")["name"]
    service.client.delete(f"/runs/{run}").raise_for_status()
    page.goto("/runs")
    page.get_by_role("button", name="archive").click()
    page.get_by_role("button", name="trash").click()
    page.get_by_label(f"Select {name}").check()
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_text("The trash is empty")).to_be_visible()
    assert service.get(f"/runs/{run}")["deleted"] is False


def test_the_trash_is_emptied_permanently_after_confirmation(page, service):
    runs = [service.launch(f"gone {n}") for n in range(2)]
    names = [service.get(f"/runs/{run}")["name"] for run in runs]
    for run in runs:
        service.client.delete(f"/runs/{run}").raise_for_status()
    page.goto("/runs?trash=1")
    page.get_by_label(f"Select {names[0]}").check()
    page.get_by_role("button", name="Delete permanently").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete permanently").click()
    expect(page.get_by_label(f"Select {names[0]}")).to_have_count(0)
    page.get_by_role("button", name="Empty the trash").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete all permanently").click()
    expect(page.get_by_text("The trash is empty")).to_be_visible()
    assert [service.client.get(f"/runs/{run}").status_code for run in runs] == [404, 404]


def test_a_checkpoint_is_evaluated_by_a_separate_run(page, service):
    page.goto(f"/run/{service.trained}?tab=files")
    page.get_by_role("button", name="Evaluate").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Prompts").fill("0")
    dialog.get_by_role("button", name="Evaluate").click()
    expect(dialog.get_by_role("alert")).to_contain_text("must be at least 1")
    dialog.get_by_label("Prompts").fill("16")
    dialog.get_by_label("Completions per prompt").fill("4")
    dialog.get_by_role("button", name="Evaluate").click()
    page.get_by_role("tabpanel").get_by_role("link", name="step 4").click()
    expect(page.get_by_text("Results appear here when the evaluation is done.")).to_be_visible()
    [child] = [run for run in service.get("/runs")["items"] if run["parent_run"] == service.trained]
    assert (child["steps"], child["fork_step"]) == (0, 4)


def test_a_checkpoint_is_forked_with_changes_from_the_launch_form(page, service):
    parent = service.get(f"/runs/{service.trained}")
    page.goto(f"/run/{service.trained}?tab=files")
    page.get_by_role("tabpanel").get_by_role("link", name="Fork").click()
    expect(page.get_by_role("heading", name=f"Fork of {parent['name']}")).to_be_visible()
    expect(page.get_by_label("Checkpoint", exact=True)).to_have_value("4")
    steps = field(page, "steps")
    expect(steps.locator("input")).to_have_value("30")
    expect(page.get_by_text("checked by the server")).to_be_visible()
    steps.locator("input").fill("4")
    expect(steps.locator(".form-errors")).to_contain_text("the fork starts after step 4")
    expect(page.get_by_role("button", name="Launch 1 run")).to_be_disabled()
    field(page, "steps").locator("input").fill("40")
    page.get_by_label("Name of the fork").fill("longer")
    page.get_by_role("button", name="Launch 1 run").click()
    page.wait_for_url("**/run/*")
    expect(page.get_by_text(f"fork of {parent['name']} at step 4")).to_be_visible()
    child = service.get(f"/runs/{page.url.rsplit('/', 1)[1]}")
    assert (child["name"], child["config"]) == ("longer", parent["config"] | {"steps": 40})
    restored_parts = {
        "checkpoint": "s000004-a1",
        "step": 4,
        "run": service.trained,
        "parts": ["policy", "optimizer"],
        "fresh": ["random"],
        "refused": [{"checkpoint": "s000009-a1", "reason": "model.safetensors is damaged"}],
        "versions": {"torch": ["2.12.0", "2.13.0"]},
    }
    with service.sessions.begin() as session:
        add_event(
            session, "checkpoint", "forked", run_id=child["id"], attempt=1, data={"restored": restored_parts}
        )
    for query in ("tab=overview", "tab=events"):
        page.goto(f"/run/{child['id']}?{query}")
        if "events" in query:
            page.get_by_text("What was restored").click()
        else:
            expect(page.get_by_role("heading", name="Restored from a checkpoint")).to_be_visible()
        notice = page.locator(".restored")
        expect(notice).to_contain_text("weights, optimizer")
        expect(notice).to_contain_text("random state")
        expect(notice).to_contain_text("model.safetensors is damaged")
        expect(notice).to_contain_text("was 2.12.0, now 2.13.0")


def test_a_link_with_an_unknown_metric_shows_a_message_in_its_panel(page):
    page.goto("/runs?panel=rewrad/mean")
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text("there is no metric 'rewrad/mean'; did you mean reward/mean")
    expect(page.get_by_role("dialog").get_by_role("button", name="Close")).to_be_visible()
