"""Tests of a run's archive, from its download on the run's page to its import, in a real browser."""

import tarfile

import pytest
from playwright.sync_api import expect

from tests.browser.service import running_service

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("trained")
        service.train(service.trained, 4, end="finished")
        yield service


def test_an_archive_is_downloaded_and_imported(page, service, tmp_path):
    page.goto(f"/run/{service.trained}?tab=files")
    link = page.get_by_role("link", name=f"run-{service.trained}.tar", exact=True)
    address = link.get_attribute("href")
    assert address is not None
    file = tmp_path / "run.tar"
    file.write_bytes(service.client.get(address.removeprefix("/api/v1")).raise_for_status().content)
    with tarfile.open(file) as archive:
        assert archive.getnames()[:2] == ["grpolab.json", "run.json"]

    page.goto("/import")
    page.get_by_label("Log to import").set_input_files(file)
    expect(page.get_by_role("heading", name="Archive of GRPO Lab")).to_be_visible()
    expect(page.get_by_text("The archive has no checkpoints")).to_be_visible()
    page.get_by_role("button", name="Import as a run").click()
    expect(page.locator(".run-origin")).to_contain_text("Imported from an archive of GRPO Lab")
    expect(page.get_by_role("tab", name="Files")).to_be_visible()
    for name in ("Resume", "Retry", "Stop"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
