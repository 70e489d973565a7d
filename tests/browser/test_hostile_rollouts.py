"""Tests of five hundred hostile texts in search results, labels, evaluations, the atlas and what-if."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from backend.base.text import clean_text
from backend.rollouts.labels import LabelRequest, put_label
from backend.rollouts.store import pack_groups, write_groups
from backend.storage.rollout_words import index_groups
from tests.browser.payloads import PAYLOADS, visible_text
from tests.browser.service import running_service
from tests.browser.watched import watched_page
from tests.factories import MadeCompletion, MadeGroup, make_experiment, make_run

pytestmark = pytest.mark.nightly

STORABLE_TEXTS = [text for text in PAYLOADS if text == clean_text(text)]
INJECTED_ELEMENTS = "script, img, iframe, object, embed, base, form[action], a[href^='javascript'], style"
"""Elements that payloads would create and that these views do not have."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        with service.sessions.begin() as session:
            experiment = make_experiment(session)
            run = make_run(session, last_step=2, experiment_id=experiment.id)
            for step, kind in ((1, "train"), (2, "eval")):
                groups = [
                    MadeGroup(
                        kind=kind,
                        prompt=f"{number} {text}",
                        prompt_index=number,
                        completions=(MadeCompletion(text=f"hostile {text}"),),
                    )
                    for number, text in enumerate(PAYLOADS)
                ]
                packed_groups = pack_groups(run.id, step, 1, groups)
                write_groups(session, packed_groups)
            for (completion, _), text in zip(packed_groups.rollouts, PAYLOADS, strict=True):
                label = clean_text(text)[:40].strip() or "blank"
                put_label(
                    session, completion, LabelRequest(label=label, note=clean_text(text)[:2000]), "operator"
                )
        for _ in index_groups(service.sessions):
            pass
        service.trained = run.id
        yield service


@pytest.fixture
def page(stage, browser):
    with watched_page(browser, stage.base, viewport={"width": 1400, "height": 2000}) as page:
        yield page


def read_texts(page, selector):
    return page.locator(selector).evaluate_all("(found) => found.map((element) => element.textContent)")


def assert_clean(page, selector):
    return page.locator(selector).locator(INJECTED_ELEMENTS).count() == 0


def test_search_results_and_labels_are_plain_text(page, stage):
    page.goto(f"/run/{stage.trained}?tab=rollouts&view=search&q=hostile&kind=eval")
    for count in range(20, len(PAYLOADS), 20):
        expect(page.locator(".search-result")).to_have_count(count)
        page.get_by_role("button", name="Show more").click()
    expect(page.locator(".search-result")).to_have_count(len(PAYLOADS))
    snippets = read_texts(page, ".search-snippet")
    for text in (text for text in PAYLOADS if text.isprintable() and 0 < len(text) < 100):
        assert any(visible_text(text, "U+{:04X}") in shown_text for shown_text in snippets), text
    assert assert_clean(page, ".search-results")
    for name in page.locator(".label-name").all()[:200:40]:
        name.click()
    expect(page.locator(".label-note").first).to_be_visible()
    assert assert_clean(page, ".search-results")
    print(f"\n{len(snippets)} texts in results, {page.locator('.label-name').count()} labels")


def test_evaluations_and_their_difference_are_plain_text(page, stage):
    page.goto(f"/run/{stage.trained}?tab=evaluations")
    rows = page.locator(".probe-matrix tbody th[scope='row']")
    expect(rows).to_have_count(len(PAYLOADS))
    prompt_texts = read_texts(page, ".probe-matrix .group-prompt")
    assert {text.split(" ", 1)[0] for text in prompt_texts} == {
        str(number) for number in range(len(PAYLOADS))
    }
    cells = page.locator("button.probe")
    for number in range(0, len(PAYLOADS), 60):
        cells.nth(number).click()
    expect(page.locator(".probe-diff .model-text")).to_be_visible()
    assert assert_clean(page, "#main")


def test_the_atlas_shows_plain_text(page, stage):
    page.goto(f"/run/{stage.trained}?tab=rollouts&view=prompts")
    page.get_by_label("sort by").select_option("rate")  # no prompt was sampled twice, so none drifted
    rows = page.locator(".probe-matrix .group-prompt")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(len(PAYLOADS))
    assert assert_clean(page, ".probe-matrix")


CRAFTED_QUERIES = (
    "tab=rollouts&view=search&q={}", "tab=rollouts&view=search&flag={}&label={}",
    "tab=rollouts&view=search&part=lift&by={}", "tab=rollouts&view={}", "tab=rollouts&step=1&what={}",
    "tab=rollouts&step=1&knobs={}", "tab=evaluations&kind=eval/{}",
)  # fmt: skip
ODD_KNOBS = (
    '{"__proto__": {"polluted": 1}}',
    '{"constructor": {"prototype": {"polluted": 1}}}',
    '{"surrogate": 5}',
    '{"surrogate": {"type": "<img src=x onerror=__hit(1)>"}}',
    "[]",
    "null",
    "{",
)


def test_crafted_links_execute_nothing(page, stage):
    for address in CRAFTED_QUERIES:
        for text in ODD_KNOBS if "knobs" in address else STORABLE_TEXTS[3::160]:
            page.goto(f"/run/{stage.trained}?{address.replace('{}', quote(text, safe=''))}")
            expect(page.locator("h1")).to_be_visible()
            page.wait_for_timeout(100)
            expect(page.get_by_text("Something went wrong on this page"), address).to_have_count(0)
            assert page.evaluate("({}).polluted") is None, address
            assert assert_clean(page, "#main"), address
