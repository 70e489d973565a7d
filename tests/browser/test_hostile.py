"""Tests that show five hundred hostile texts everywhere that external text is shown, in a real browser.

Nothing may be executed, fetched, opened or reported, and the page must show what was written, with hidden
characters made visible. `make hostile` also shows all 500 in the positions that take one text per page."""

import csv
import io
import json
import os
from collections.abc import Iterator
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import insert, update

from backend.base.text import clean_text
from backend.catalog.datasets.files import Upload, Uploads
from backend.config.merge import config_hash, resolve
from backend.metrics.store import write_points
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.store import pack_groups, write_groups
from backend.runs.events import add_event
from backend.runs.store import append_log
from backend.storage.engine import new_id
from backend.storage.models import Experiment, Run, Worker
from tests.browser.payloads import PAYLOADS, visible_text
from tests.browser.service import running_service
from tests.browser.watched import watched_page
from worker.host.trainer_logs import clean_line

pytestmark = pytest.mark.nightly

IS_LONG = bool(os.environ.get("GRPOLAB_HOSTILE"))
STORABLE_TEXTS = [text for text in PAYLOADS if text == clean_text(text)]
"""Texts that a database accepts. Other names are refused with a reason."""
PAGE_TEXTS = STORABLE_TEXTS if IS_LONG else STORABLE_TEXTS[3::200]
"""Texts for positions that take one text per page."""
GROUP_COUNT = 5
HUGE_TEXT = "<img src=x onerror=__hit(1)>" * 360_000


def in_chunks(texts):
    """Return the texts in chunks of one hundred."""
    return [texts[start : start + 100] for start in range(0, len(texts), 100)]


class Stage:
    """A service in which every text is hostile."""

    def __init__(self, service, directory):
        self.service = service
        self.runs = {new_id(): text for text in STORABLE_TEXTS}
        self.main = next(iter(self.runs))
        self.experiment = new_id()
        with service.sessions.begin() as session:
            self._runs(session)
            self._texts(session)
            self._rollouts(session)
        self._datasets(directory / "datasets")

    def _runs(self, session):
        """Store a run for each text, which is used for all of its names."""
        variants = [{"name": text} for text in STORABLE_TEXTS[:100]]
        request = {"name": STORABLE_TEXTS[0], "base": {}, "variants": variants, "seeds": [0]}
        experiment = {"id": self.experiment, "name": "<svg onload=__hit(1)>", "request": request}
        session.execute(insert(Experiment), {**experiment, "request_hash": "0" * 64})
        config = resolve({}, None, 0)
        common_fields = {
            "seed": 0, "config": config.model_dump(mode="json"), "config_hash": config_hash(config),
            "steps": 5, "last_step": 5, "summary": {"step": 5, "last": {"reward/mean": 0.5}, "best": {}},
        }  # fmt: skip
        rows = [
            {
                **common_fields, "id": run_id, "name": text, "variant": text, "tags": [text[:64]],
                "notes": text, "reason": text, "status": "queued" if number % 2 else "failed",
                "experiment_id": self.experiment if number < 100 else None,
            }
            for number, (run_id, text) in enumerate(self.runs.items())
        ]  # fmt: skip
        session.execute(insert(Run), rows)
        for run_id in self.runs:
            write_points(session, run_id, 1, [(step, {"reward/mean": step / 5}) for step in range(1, 6)])
        session.execute(
            insert(Worker),
            [
                {
                    "id": f"w{number}",
                    "host": text,
                    "pid": 1,
                    "slot": 0,
                    "device": text[:64],
                    "device_name": text,
                }
                for number, text in enumerate(STORABLE_TEXTS)
            ],
        )

    def _texts(self, session):
        """Store the history and output of one run."""
        for text in PAYLOADS:
            add_event(session, "alert", text, run_id=self.main, level="warning", step=1)
        self.log = "".join(clean_line(line) + "\n" for text in PAYLOADS for line in text.split("\n"))
        append_log(session, self.main, 1, 0, self.log)
        session.execute(update(Run).where(Run.id == self.main).values(reason=clean_text("\n".join(PAYLOADS))))

    def _rollouts(self, session):
        """Store every text as a completion, and as the prompt, answer and source of some group."""
        chunks = in_chunks(PAYLOADS)
        groups = [
            GroupRecord(
                "train", number, f"id/{number}", "\n".join(chunk), "math", "\n".join(chunk), "\n".join(chunk),
                [completion(text) for text in chunk],
            )
            for number, chunk in enumerate(chunks)
        ]  # fmt: skip
        huge_group = GroupRecord(
            "eval", 0, "huge", "sums", "math", HUGE_TEXT, HUGE_TEXT, [completion(HUGE_TEXT)]
        )
        for step, groups_of_step in ((1, groups), (2, [huge_group])):
            write_groups(session, pack_groups(self.main, step, 1, groups_of_step))

    def _datasets(self, directory):
        """Store a dataset named after each text, with files that differ in their last row."""
        uploads = Uploads(directory)
        for number, text in enumerate(STORABLE_TEXTS):
            with uploads.draft() as draft:
                draft.file.write(b'{"prompt": "1", "answer": 1}\n{"prompt": "%d+1", "answer": 2}\n' % number)
                upload_fields = {"sha256": f"{number:064x}", "rows": 2, "bytes": 60, "uploaded_at": 0.0}
                uploads.store(draft, Upload(name=text, **upload_fields))


def completion(text):
    """Return a completion in tokens of five characters."""
    tokens = [text[start : start + 5] for start in range(0, min(len(text), 40_000), 5)] or [""]
    return CompletionRecord(
        text=text, token_strings=tokens, token_ids=[0] * len(tokens), reward=0.0, advantage=0.0,
        rewards={"correctness": 0.0}, finish_reason="stop", correct=False,
        arrays={name: np.full(len(tokens), -1.0, np.float32) for name in ("logprob", "entropy")},
    )  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("lab")
    with running_service(directory) as service:
        yield Stage(service, directory)


@pytest.fixture
def page(stage, browser) -> Iterator[Page]:
    """A page that is tall enough to need no scrolling."""
    with watched_page(browser, stage.service.base, viewport={"width": 1400, "height": 17_500}) as page:
        yield page


def read_texts(page, selector):
    """Return the text of every element, exactly as in the document."""
    return page.locator(selector).evaluate_all("(found) => found.map((element) => element.textContent)")


def go(page, address):
    """Go to an address of the application, like an internal link."""
    page.evaluate(
        "(to) => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }",
        address,
    )


def test_completions_prompts_and_answers_are_plain_text(page, stage):
    for number, chunk in enumerate(in_chunks(PAYLOADS), 1):
        page.goto(f"/run/{stage.main}?tab=rollouts&step=1&prompt={number}&colour=none")
        expect(page.get_by_text(f"prompt {number} of {GROUP_COUNT}")).to_be_visible()
        expect(page.get_by_role("article")).to_have_count(len(chunk))
        visible_texts = [visible_text(text, "U+{:04X}") for text in chunk]
        assert read_texts(page, "article .model-text") == visible_texts
        assert (
            read_texts(page, ".group-question .model-text, .group-answer .model-text")
            == ["\n".join(visible_texts)] * 2
        )
        assert visible_text(clean_text("\n".join(chunk))) in read_texts(page, ".group-facts")[0]
    print(f"\n{len(PAYLOADS)} texts as completion, prompt, answer and source")


def test_tokens_are_plain_text(page, stage):
    for number, chunk in enumerate(in_chunks(PAYLOADS), 1):
        page.goto(f"/run/{stage.main}?tab=rollouts&step=1&prompt={number}")
        coloured = page.locator("article .model-text.is-coloured")
        expect(coloured).to_have_count(len(chunk))
        assert read_texts(page, "article .model-text") == [visible_text(text, "U+{:04X}") for text in chunk]
        for token in page.locator("article [data-token='0']").all()[:: 1 if IS_LONG else 25]:
            token.hover()
        expect(page.locator(".readout-token")).to_be_visible()
    print(f"\n{len(PAYLOADS)} texts token by token")


def test_the_table_of_runs_is_plain_text(page, stage):
    page.goto("/runs?show=-&columns=reward/mean,experiment,tags,reason")
    expect(page.locator(".runs-tools")).to_contain_text(f"{len(STORABLE_TEXTS)} runsImport")
    expect(page.locator(".grid-row")).to_have_count(len(STORABLE_TEXTS))
    rows = dict(
        page.locator(".grid-row").evaluate_all(
            "(rows) => rows.map((row) => [row.dataset.key, [...row.children].map((it) => it.textContent)])"
        )
    )
    for run_id, text in stage.runs.items():
        reason = visible_text(text if run_id != stage.main else clean_text("\n".join(PAYLOADS)))
        cells = rows[run_id]
        assert cells[2].startswith(visible_text(text) + visible_text(text[:64]))
        assert (cells[4], cells[-2], cells[-1]) == (visible_text(text), visible_text(text[:64]), reason)
    for menu in ("variant", "tag", "experiment"):
        page.locator(".runs-filters").get_by_role("button", name=menu, exact=True).click()
        page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "runs.csv"
    check_csv(download.value.path().read_bytes().decode(), stage)
    print(f"\n{len(STORABLE_TEXTS)} texts as name, variant, tag and reason of a run; {len(rows)} rows of CSV")


def check_csv(text, stage):
    """Check that no text cell is a formula for a spreadsheet, and is unchanged except for the apostrophe."""
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {row["id"] for row in rows} == set(stage.runs)
    for row in rows:
        for field in ("name", "variant", "experiment_name", "tags"):
            assert not row[field].startswith(tuple("=@\t\r\n＝＋－＠")) or row[field] == ""
            assert not row[field].startswith(("+", "-")) or float(row[field]) is not None
        assert row["name"].removeprefix("'") == stage.runs[row["id"]].removeprefix("'")


def test_curves_legends_and_hover_labels_are_plain_text(page, stage):
    drawn_count, runs = 0, list(stage.runs)
    chunk_size = 12  # more lines are painted on a canvas, see test_painted.py
    for chunk in (
        [runs[start : start + chunk_size] for start in range(0, len(runs), chunk_size)]
        if IS_LONG
        else [runs[::50][:chunk_size]]
    ):
        page.set_viewport_size({"width": 1400, "height": 1000})
        page.goto(f"/runs?show={','.join(chunk)}&panel=reward/mean")
        plot = page.locator("dialog .js-plotly-plot")
        expect(plot.locator(".trace").first).to_be_attached()
        page.wait_for_function(DRAWN, arg=len(chunk))
        hover_labels = plot.evaluate(HOVER)
        for label, run in hover_labels:
            name = visible_text(stage.runs[run])
            assert without_whitespace(label).startswith(without_whitespace(f"{name} · {name} s0"))
        assert plot.locator("a, img, script, foreignObject").count() == 0
        drawn_count += len(hover_labels)
    page.goto(f"/experiment/{stage.experiment}")
    expect(page.locator(".legend-item")).to_have_count(40)
    page.get_by_role("button", name="60 more").click()
    legend = set(read_texts(page, ".legend-item > span:first-of-type"))
    assert {visible_text(text) for text in STORABLE_TEXTS[:100]} <= legend
    print(f"\n{drawn_count} texts in hover labels, 100 in legend and tables of a comparison")


DRAWN = """(count) => document.querySelector('dialog .js-plotly-plot')
    .data.filter((trace) => trace.meta.role === 'main').length === count"""

HOVER = """(plot) => plot.data.flatMap((trace, curveNumber) => {
    if (trace.meta.role !== 'main') return [];
    Plotly.Fx.hover(plot, [{ curveNumber, pointNumber: 2 }]);
    const found = [...plot.querySelectorAll('.hovertext')].map((it) => [it.textContent, trace.meta.run]);
    Plotly.Fx.unhover(plot);
    return found;
})"""
"""The hover label of every curve, which only Plotly truncates."""


def without_whitespace(text):
    """Return the text without whitespace, which SVG folds, and without the mark against templates."""
    return "".join(text.replace("%\u200b{", "%{").split())


def test_history_and_output_are_plain_text(page, stage):
    page.goto(f"/run/{stage.main}?tab=events")
    for count in range(100, len(PAYLOADS), 100):
        expect(page.locator(".event")).to_have_count(count)
        page.get_by_role("button", name="Older events").click()
    expect(page.locator(".event")).to_have_count(len(PAYLOADS))
    expected = [visible_text(clean_text(text), "U+{:04X}") for text in reversed(PAYLOADS)]
    assert read_texts(page, ".event-message") == expected
    page.goto(f"/run/{stage.main}?tab=log")
    expect(page.locator(".run-log")).to_contain_text("brave-otter")
    assert read_texts(page, ".run-log") == [visible_text(stage.log, "U+{:04X}")]
    assert read_texts(page, ".run-failure pre") == [visible_text(clean_text("\n".join(PAYLOADS)))]
    print(f"\n{len(PAYLOADS)} texts as event, output and reason")


def test_the_queue_and_the_workers_are_plain_text(page, stage):
    page.goto("/queue")
    names = page.locator(".queue-name")
    expect(names).to_have_count(200)
    for address, name in names.evaluate_all(
        "(found) => found.map((link) => [link.pathname, link.textContent])"
    ):
        assert name == visible_text(stage.runs[address.removeprefix("/run/")])
    rows = page.locator("tbody tr:has(.slot-state)")
    expect(rows).to_have_count(len(STORABLE_TEXTS))
    hosts = read_texts(page, "tbody tr:has(.slot-state) td:nth-child(2)")
    assert sorted(hosts) == sorted(map(visible_text, STORABLE_TEXTS))
    devices = read_texts(page, "tbody tr:has(.slot-state) td:nth-child(1)")
    assert sorted(devices) == sorted(
        f"{visible_text(text)} {visible_text(text[:64])}" for text in STORABLE_TEXTS
    )
    print(f"\n200 texts in the queue, {len(hosts)} hosts and devices")


def test_titles_and_headings_are_plain_text(page, stage):
    sampled_runs = list(stage.runs) if IS_LONG else list(stage.runs)[::100]
    page.goto("/runs?show=-")
    for run_id in sampled_runs:
        go(page, f"/run/{run_id}?tab=config")
        heading = page.locator("h1.run-name")
        page.wait_for_function(
            "(id) => location.pathname.endsWith(id) && document.querySelector('h1.run-name')", arg=run_id
        )
        page.wait_for_function("() => document.title !== 'Run · GRPO Lab'")
        visible_name = visible_text(stage.runs[run_id])
        page.wait_for_function(
            "(text) => document.querySelector('h1.run-name')?.textContent === text", arg=visible_name
        )
        expect(heading).to_be_attached()
        # Browsers fold whitespace in titles.
        assert page.title().split() == f"{visible_name}: Config · GRPO Lab".split()
    print(f"\n{len(sampled_runs)} texts as title and heading")


def test_messages_about_actions_are_plain_text(page, stage):
    page.set_viewport_size({"width": 1400, "height": 900})
    short_texts = [
        text[:40] for text in PAGE_TEXTS if text.strip() == text and "\n" not in text and "\r" not in text
    ]
    for number, text in enumerate(short_texts):
        page.goto("/runs?show=-")
        # A run may have at most fifty tags.
        row = page.locator(".grid-row").nth(3 + number % 12)
        row.locator("input[type=checkbox]").check()
        had_tag = stage.runs[row.get_attribute("data-key")][:64] == text
        page.get_by_role("button", name="Tag", exact=True).click()
        page.get_by_role("dialog").get_by_label("Tag").fill(text)
        page.get_by_role("dialog").locator("button.button-primary").click()
        expect(page.locator(".toast span").first).to_have_text(
            f"1 run {'without the tag' if had_tag else 'tagged'} {visible_text(text)}"
        )
    print(f"\n{len(short_texts)} texts in messages")


def test_the_form_and_its_errors_are_plain_text(page, stage):
    chunks = in_chunks(STORABLE_TEXTS) if IS_LONG else [STORABLE_TEXTS[::40]]
    for chunk in chunks:
        names = [{"name": text} for text in chunk]
        page.goto(f"/launch?variants={quote(json.dumps(names))}&name={quote(chunk[0])}")
        expect(page.get_by_label("Name of the experiment")).to_have_value(chunk[0].replace("\n", ""))
    for text in PAGE_TEXTS:
        base = {"policy": {"name": text}, "problems": [{"name": "file", "path": text or "x"}], text: 1}
        page.goto(f"/launch?base={quote(json.dumps(base))}")
        expect(page.get_by_text("to fix before you can launch")).to_be_visible()
        offered = "[data-path='problems.0.path'] option[value^='uploads/']"
        expect(page.locator(offered)).to_have_count(len(STORABLE_TEXTS))
        assert sorted(read_texts(page, offered)) == sorted(
            f"{visible_text(name)} · 2 rows, 60 B" for name in STORABLE_TEXTS
        )
        assert page.evaluate("({}).polluted") is None
    print(
        f"\n{sum(map(len, chunks))} texts as variants, {len(STORABLE_TEXTS)} as datasets, "
        f"{len(PAGE_TEXTS)} in errors"
    )


ADDRESS_TEMPLATES = (
    "/runs?q={}", "/runs?tag={}&variant={}&experiment={}", "/runs?columns={},reward/mean", "/runs?sort={}",
    "/runs?group={}", "/runs?panel={}", "/runs?show={}", "/runs?metrics={}&x={}&zoom={}&log={}",
    "/compare?runs={}", "/compare?query={}", "/experiment/{}?baseline={}", "/experiments?q={}", "/run/{}",
    "/run/RUN?tab=rollouts&filter={}&sort={}", "/run/RUN?tab=evaluations&kind={}",
    "/launch?seeds={}&open={}", "/launch?from={}", "/launch?base={}", "/launch?variants={}",
    "/nowhere/{}", "/runs?x=1#{}",
)  # fmt: skip
SPECIAL_NAMES = (
    ".", "..", "//", "__proto__", "constructor", "toString", '{"__proto__": {"polluted": 1}}',
)  # fmt: skip


def test_crafted_links_execute_nothing(page, stage):
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto("/queue")
    for address in ADDRESS_TEMPLATES:
        for text in STORABLE_TEXTS if IS_LONG else [*STORABLE_TEXTS[::200], *SPECIAL_NAMES]:
            go(page, address.replace("RUN", stage.main).replace("{}", quote(text, safe="")))
            page.wait_for_timeout(60)
            assert page.locator("#main").count() == 1, address
        expect(page.locator("h1, h2, .runs").first).to_be_attached()
        expect(page.get_by_text("Something went wrong on this page"), address).to_have_count(0)
        assert page.evaluate("({}).polluted") is None, address
