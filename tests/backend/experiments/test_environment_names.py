"""The form offers the environments that the operator named, and nothing of their addresses."""

import json

from backend.base.settings import Settings
from backend.experiments.catalog import config_schema


def server_field(urls):
    schema = json.loads(bytes(config_schema(Settings(openenv_urls=urls)).body))
    assert "10.1.2.3" not in json.dumps(schema)
    return schema["schema"]["$defs"]["OpenEnv"]["properties"]["server"]


def test_the_form_offers_the_names_of_the_environments():
    named = server_field("guess=http://10.1.2.3:8000,maze=https://10.1.2.3")
    assert (named["enum"], named["default"]) == (["guess", "maze"], "guess")


def test_without_environments_the_form_takes_any_name():
    assert "enum" not in server_field("")
