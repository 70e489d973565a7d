"""Tests of a user's dataset, from a local file to a launched run, in a real browser."""

import gzip
import json

from playwright.sync_api import expect

ROWS = [{"prompt": f"{n}+1=?", "answer": n + 1} for n in range(40)]
VALID_JSONL = "\n".join(map(json.dumps, ROWS)).encode()
HOSTILE_FILE_NAME = "my </script>\u202e<img src=x onerror=__hit(1)>.jsonl.gz"


def upload_file(name, content):
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


def test_a_dataset_is_uploaded_viewed_launched_and_deleted(page, service):
    page.goto('/launch?base={"problems":[{"name":"file","path":"none.jsonl"}]}&seeds=0')
    field = page.locator("[data-path='problems.0.path']")
    expect(field.get_by_text('there is no file "none.jsonl" in DATASETS_DIR')).to_be_visible()

    bad_content = VALID_JSONL + b'\n{"prompt": "", "answer": 1}\nnonsense'
    page.get_by_label("File to upload").set_input_files(upload_file("bad.jsonl", bad_content))
    page.get_by_role("button", name="Upload this file").click()
    error_box = field.locator(".dataset-refused")
    expect(error_box).to_contain_text("bad.jsonl could not be uploaded")
    expect(error_box.locator("li")).to_have_count(2)
    expect(error_box.locator("li").first).to_have_text(
        "line 41 field 'prompt': expected text that is not empty, got \"\""
    )

    page.get_by_label("File to upload").set_input_files(
        upload_file(HOSTILE_FILE_NAME, gzip.compress(VALID_JSONL))
    )
    expect(page.get_by_role("status").filter(has_text="is not uploaded yet")).to_be_visible()
    expect(page.get_by_role("button", name="Launch 1 run")).to_be_disabled()
    page.get_by_role("button", name="Upload this file").click()
    selected_option = field.get_by_role("combobox").locator("option:checked")
    visible_name = HOSTILE_FILE_NAME.replace("\u202e", "‹U+202E›")
    expect(selected_option).to_have_text(f"{visible_name} · 40 rows, {len(VALID_JSONL) / 1024:.2f} KiB")
    expect(error_box).to_have_count(0)
    rows = page.locator(".preview tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_have_text("0+1=?1")

    page.get_by_role("button", name="Launch 1 run").click()
    page.wait_for_url("**/experiment/*")
    [run] = service.get("/runs", experiment=page.url.rpartition("/")[2], include="config")["items"]
    [uploaded_dataset] = service.get("/datasets")["items"]
    [problem] = run["config"]["problems"]
    assert (problem["path"], problem["sha256"]) == (uploaded_dataset["path"], uploaded_dataset["sha256"])

    page.goto(f"/launch?from={run['id']}")
    page.get_by_role("button", name="Delete this upload").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text(f"is used by {run['name']}")).to_be_visible()
    assert len(service.get("/datasets")["items"]) == 1


def test_a_table_is_uploaded_and_its_refusals_name_rows(page):
    page.goto('/launch?base={"problems":[{"name":"file","path":"none.jsonl"}]}&seeds=0')
    field = page.locator("[data-path='problems.0.path']")
    bad_content = b"prompt,answer\n=1+1,2\n,3\n"
    page.get_by_label("File to upload").set_input_files(upload_file("bad.csv", bad_content))
    page.get_by_role("button", name="Upload this file").click()
    error_box = field.locator(".dataset-refused")
    expect(error_box.locator("li")).to_have_text(
        "row 2 field 'prompt': expected text that is not empty, got \"\""
    )
    page.get_by_label("File to upload").set_input_files(
        upload_file("good.csv", b"prompt,answer\n=1+1,2\n=1+2,3\n")
    )
    page.get_by_role("button", name="Upload this file").click()
    expect(page.locator(".preview tbody tr").first).to_have_text("=1+12")


HOSTILE_COLUMN = "<img src=x onerror=__hit(1)>"


def test_columns_are_recognised_shown_and_changed_before_the_upload(page, service):
    page.goto('/launch?base={"problems":[{"name":"file","path":"none.jsonl"}]}&seeds=0')
    rows = [
        {
            "problem": f"{n}+1=?",
            "solution": f"so \\boxed{{{n + 1}}}",
            HOSTILE_COLUMN: "</script>",
            "short": str(n + 1),
        }
        for n in range(9)
    ]
    content = "\n".join(map(json.dumps, rows)).encode()
    page.get_by_label("File to upload").set_input_files(upload_file("math.jsonl", content))
    columns = page.get_by_role("region", name="Columns of the file")
    expect(columns.get_by_label("Prompt")).to_have_value("problem")
    expect(columns.get_by_label("Part of the answer")).to_have_value("boxed")
    expect(columns.locator("tbody tr")).to_have_text(["0+1=? 1", "1+1=? 2", "2+1=? 3"])
    columns.get_by_label("Answer", exact=True).select_option(HOSTILE_COLUMN)
    expect(columns.locator("tbody tr").first).to_have_text("0+1=? </script>")
    columns.get_by_label("Answer", exact=True).select_option("problem: the last message")
    expect(columns.locator("tbody tr").first).to_contain_text("expected a list of messages that ends with")
    expect(columns.get_by_role("button", name="Upload this file")).to_be_disabled()
    assert not any(item["name"] == "math.jsonl" for item in service.get("/datasets")["items"])
    columns.get_by_label("Answer", exact=True).select_option("short")
    columns.get_by_label("Part of the answer").select_option("text")
    expect(columns.locator("tbody tr").first).to_have_text("0+1=? 1")
    columns.get_by_role("button", name="Upload this file").click()
    expect(columns).to_have_count(0)
    expect(page.locator("[data-path='problems.0.answer_field'] input")).to_have_value("short")
    expect(page.locator(".preview tbody tr").first).to_have_text("0+1=?1")
    assert page.evaluate("window.__hits ?? 0") == 0


def test_a_known_dataset_fills_in_the_problems_and_the_hub_is_off(page):
    page.goto("/launch?seeds=0")
    page.get_by_role("button", name="Known datasets").click()
    page.locator(".offer", has_text="MATH-lighteval").click()
    dataset = page.locator("[data-path='problems.0.dataset']")
    expect(dataset.get_by_role("textbox")).to_have_value("DigitalLearningGmbH/MATH-lighteval")
    expect(dataset).to_contain_text("HF_ONLINE is off: set HF_ONLINE=1, or use a file")
    expect(page.locator("[data-path='problems.0.eval_dataset'] input")).to_have_value(
        "HuggingFaceH4/MATH-500"
    )
    page.get_by_role("button", name="Known datasets").click()
    page.locator(".offer", has_text="Countdown").click()
    expect(page.locator("[data-path='problems.0.task']")).to_be_visible()
    expect(page.get_by_text("HF_ONLINE is off")).to_have_count(0)
