"""Tests of the memory estimate at the launch form: which worker fits, and applying changes with one click."""

import json
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from backend.runs.workers.devices import Slot
from backend.runs.workers.store import register_slot, report_slot
from tests.browser.service import HOSTILE, NARROW_VIEWPORT, WIDE_VIEWPORT, open_context


@pytest.fixture(params=[NARROW_VIEWPORT, WIDE_VIEWPORT], ids=str)
def page(request, service, browser):
    width, scheme = request.param
    context = open_context(browser, service, width, scheme, height=1400)
    yield context.new_page()
    context.close()


def slots(service, *sizes):
    """Register workers with GPUs of these sizes, the first with a hostile name."""
    with service.sessions.begin() as session:
        for number, size in enumerate(sizes):
            slot = Slot(number, "cuda:0", HOSTILE if number == 0 else "NVIDIA H100", 2, "GPU-0")
            register_slot(session, f"w{number}", slot, host=f"host-{number}", pid=number)
            stats = {"gpu_memory_total_bytes": size, "memory_total_bytes": 64e9} if size else {}
            report_slot(session, f"w{number}", "idle", None, stats)


def test_one_click_makes_a_run_fit(service, page, tmp_path):
    slots(service, 80e9, 1.1e9, 0)
    sampling = {"prompts_per_step": 32, "group_size": 16, "max_new_tokens": 900}
    query = urlencode({"base": json.dumps({"sampling": sampling}), "seeds": "0"})
    page.goto(f"{service.base}/launch?{query}")
    memory = page.get_by_role("region", name="Memory")
    expect(memory).to_contain_text("at its peak, while it learns")
    expect(memory).to_contain_text("Fits on host-0")
    expect(memory).to_contain_text("Fits with changes on host-1")
    expect(memory).to_contain_text("host-2 does not report its memory")
    memory.get_by_text("at its peak").click()
    expect(memory.get_by_role("row", name="Activations")).to_be_visible()
    page.screenshot(path=str(tmp_path / "memory.png"), full_page=True)
    memory.screenshot(path=str(tmp_path / "box.png"))
    memory.get_by_role("button", name="Apply").click()
    expect(memory).to_contain_text("Fits on host-1")
    assert "microbatch_tokens" in page.url
