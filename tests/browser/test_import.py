"""Tests of the import of another trainer's log, from a local file to a run, in a real browser."""

import json

from playwright.sync_api import expect

from tests.browser.service import VIEWER_TOKEN

HOSTILE_FILE_NAME = "old <img src=x onerror=__hit(1)>.csv"
ROWS = "".join(f"{step},{step * 10},{step / 10},{2 - step / 10},phase-{step}\n" for step in range(1, 9))
LOG = f"step,samples,reward,<b>odd</b>,phase\n{ROWS}9,90,broken,1,x\n"
HOSTILE_TEXT = "<img src=x onerror=__hit(1)>"
HISTORY = [{"step": step, "reward": step / 8, "loss": 0.5} for step in (10, 20)]
TRAINER_STATE = {"max_steps": 20, "log_history": HISTORY}


def choose(page, name, content):
    file = {"name": name, "mimeType": "text/plain", "buffer": content.encode()}
    page.get_by_label("Log to import").set_input_files(file)


def test_a_log_is_previewed_corrected_and_imported(page, service):
    page.goto("/runs")
    page.get_by_role("link", name="Import a log").first.click()
    choose(page, "picture.png", "\x00\x01")
    expect(page.locator(".import-refused")).to_contain_text("picture.png is a binary file of an unknown kind")

    choose(page, HOSTILE_FILE_NAME, LOG)
    expect(page.get_by_role("heading", name="CSV with a header")).to_be_visible()
    expect(page.locator(".import-refused")).to_have_count(0)
    expect(page.get_by_label("Metric of reward")).to_have_value("reward/mean")
    expect(page.get_by_label("Metric of <b>odd</b>")).to_have_value("_b_odd_/b_")
    expect(page.get_by_label("Metric of phase")).to_have_value("")
    page.get_by_text("1 line or value left out").click()
    expect(page.get_by_text("line 10 'reward' is 'broken', expected a number")).to_be_visible()

    page.get_by_label("Steps are counted by").select_option("samples")
    expect(page.get_by_text("steps 10 to 90")).to_be_visible()
    page.get_by_label("Metric of <b>odd</b>").fill("mine/odd")
    page.get_by_label("Name of the run").fill("old baseline")
    page.get_by_role("button", name="Import as a run").click()
    page.wait_for_url("**/run/*")

    expect(page.get_by_role("heading", name="old baseline")).to_be_visible()
    expect(page.locator(".run-origin")).to_have_text(f"Imported from CSV {HOSTILE_FILE_NAME}")
    expect(page.get_by_role("tab")).to_have_text(
        ["Overview", "Charts", "Rollouts", "Evaluations", "Config", "Events"]
    )
    for name in ("Resume", "Retry", "Stop", "Clone", "Fork"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    run = service.get(f"/runs/{page.url.rpartition('/')[2]}")
    assert run["summary"]["last"] == {"reward/mean": 0.8, "mine/odd": 1.0}
    assert (run["last_step"], run["origin_file"], run["experiment_name"]) == (
        90,
        HOSTILE_FILE_NAME,
        HOSTILE_FILE_NAME,
    )


def test_several_files_become_one_import_with_a_run_per_file(page, service):
    page.goto("/import")
    files = [
        {"name": f"{name}.log", "mimeType": "text/plain", "buffer": f"step=1 reward={reward}\n".encode()}
        for name, reward in (("first", 0.25), ("second", 0.5))
    ]
    page.get_by_label("Log to import").set_input_files(files)
    expect(page.locator(".import-runs label")).to_have_text(["first1 row", "second1 row"])
    page.get_by_role("button", name="Import 2 runs").click()
    page.wait_for_url("**/compare*")
    run_ids = page.url.rpartition("runs=")[2].split(",")
    runs = {run["name"]: run for run in (service.get(f"/runs/{run_id}") for run_id in run_ids)}
    assert {name: run["summary"]["last"]["reward/mean"] for name, run in runs.items()} == {
        "first": 0.25,
        "second": 0.5,
    }
    assert runs["first"]["experiment_name"] == "first.log and 1 more"


def test_a_directory_with_checkpoints_is_imported_as_one_run(page, tmp_path):
    for step in (10, 20):
        checkpoint = tmp_path / "run" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        state = TRAINER_STATE | {"log_history": HISTORY[: step // 10]}
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    page.goto("/import")
    page.get_by_label("Directory to import").set_input_files(str(tmp_path / "run"))
    expect(page.get_by_text("steps 10 to 20")).to_be_visible()
    expect(page.get_by_text("Of 2 checkpoints, the longest history is taken")).to_be_visible()


def test_the_config_of_another_trainer_is_shown_unchanged(page, service):
    page.goto("/import")
    choose(page, "trainer_state.json", json.dumps(TRAINER_STATE, indent=2))
    page.get_by_role("button", name="Import as a run").click()
    page.wait_for_url("**/run/*")
    expect(page.get_by_role("heading", name="Imported from TRL")).to_be_visible()
    page.get_by_role("tab", name="Config").click()
    expect(page.get_by_role("row", name="max_steps 20")).to_be_visible()
    page.get_by_role("tab", name="Charts").click()
    expect(page.locator(".panel").first).to_be_visible()


RUN_NAMES = ("<i>a</i>", "b, c", "d")
THREE_RUNS = "".join(f'"{run}",{step},{step / 4}\n' for step in (1, 2) for run in RUN_NAMES)
VERL_DUMP = "".join(
    json.dumps({"input": "1+1=", "output": text, "gts": "2", "score": score, "step": 3}) + "\n"
    for text, score in (("2", 1.0), (HOSTILE_TEXT, 0.0))
)


def test_runs_of_a_file_can_be_chosen_and_compared(page):
    page.goto("/import")
    choose(page, "three.csv", f"run,step,reward\n{THREE_RUNS}")
    expect(page.get_by_text("The file holds 3 runs.")).to_be_visible()
    page.get_by_role("group", name="The file holds 3 runs.").get_by_role("checkbox").nth(2).uncheck()
    expect(page.get_by_role("button", name="Import 2 runs")).to_be_enabled()
    expect(page.get_by_label("Name of the run")).to_have_count(0)
    page.get_by_role("button", name="Import 2 runs").click()
    page.wait_for_url("**/compare?runs=*")
    expect(page.get_by_text("<i>a</i>").first).to_be_visible()
    expect(page.get_by_text("b, c").first).to_be_visible()


def test_completions_of_a_dump_are_shown_as_rollouts(page):
    page.goto("/import")
    choose(page, "3.jsonl", VERL_DUMP)
    page.get_by_role("button", name="Import as a run").click()
    page.wait_for_url("**/run/*")
    page.get_by_role("tab", name="Rollouts").click()
    expect(page.get_by_text(HOSTILE_TEXT).first).to_be_visible()


def test_a_viewer_is_told_that_only_operators_can_import(service, browser):
    headers = {"Authorization": f"Bearer {VIEWER_TOKEN}"}
    context = browser.new_context(base_url=service.base, extra_http_headers=headers)
    page = context.new_page()
    page.goto("/import")
    expect(page.get_by_role("heading", name="Only operators import logs")).to_be_visible()
    page.goto("/runs")
    expect(page.get_by_text("columns")).to_be_visible()
    expect(page.get_by_text("Import a log")).to_have_count(0)
    context.close()
