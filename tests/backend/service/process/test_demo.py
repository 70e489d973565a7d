"""Tests of an installation's demo, through the service's HTTP API."""

import pytest

from backend.base.settings import Settings
from backend.config.recipes import RECIPES
from backend.service.process import demo
from tests.browser.service import TOKEN, running_service


@pytest.fixture
def service(tmp_path):
    with running_service(tmp_path) as service:
        yield service


def test_a_demo_is_launched_once_per_version(service, tmp_path, monkeypatch):
    settings = Settings(state_dir=tmp_path, grpolab_token=TOKEN)
    first = demo.launch_demo(settings, service.base)
    assert first.startswith("2 runs: ")
    assert first.count(" (queued)") == 2
    assert demo.launch_demo(settings, service.base) == first
    service.train(service.get("/runs")["items"][-1]["id"], 1, end="finished")
    second_message = demo.launch_demo(settings, service.base)
    assert second_message.startswith("already launched: ")
    assert (second_message.count(" (finished)"), second_message.count(" (queued)")) == (1, 1)
    demo_recipe = RECIPES["demo_healthy"]
    newer_recipe = demo_recipe.model_copy(
        update={"config": demo_recipe.config.model_copy(update={"steps": 81})}
    )
    monkeypatch.setattr(demo, "RECIPES", {**RECIPES, "demo_healthy": newer_recipe})
    assert demo.launch_demo(settings, service.base) != first
    assert len(service.get("/runs")["items"]) == 4
