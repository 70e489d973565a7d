"""Test that every config field and every setting has a description in its JSON schema."""

from backend.base.documented import field_descriptions
from backend.base.settings import Settings
from backend.config.run import RunConfig


def test_every_field_of_a_run_and_every_setting_is_described():
    assert field_descriptions(RunConfig).keys() == RunConfig.model_fields.keys()
    assert field_descriptions(Settings).keys() == Settings.model_fields.keys()
