"""Descriptions of fields: the texts below them, in JSON schemas."""

from typing import Annotated

from pydantic import Field, create_model

from backend.base.documented import Documented, descriptions_of
from backend.base.settings import Settings
from backend.config.run import RunConfig


class Base(Documented):
    kept: int
    """The base's."""
    replaced: int
    """Lost with the field's new declaration."""
    silent: int = 0
    own: Annotated[int, Field(description="Written in the field.")] = 0
    """Not shown."""


class Child(Base):
    replaced: int
    silent: int = 1
    """In
    two lines."""

    class Inner(Documented):
        kept: int
        """The inner one's."""

    inner: Inner | None = None


def described(model):
    return {
        name: schema.get("description") for name, schema in model.model_json_schema()["properties"].items()
    }


def test_a_schema_has_the_text_below_the_last_declaration_of_each_field():
    assert described(Child) == {
        "kept": "The base's.",
        "replaced": None,
        "silent": "In\ntwo lines.",
        "own": "Written in the field.",
        "inner": None,
    }
    assert (
        Child.model_json_schema()["$defs"]["Inner"]["properties"]["kept"]["description"] == "The inner one's."
    )


def test_a_model_without_a_source_has_a_schema_without_descriptions():
    bare_model = create_model("Made", __base__=Documented, __module__="nowhere", field=(int, ...))
    assert described(bare_model) == {"field": None}


def test_every_field_of_a_run_and_every_setting_is_described():
    assert descriptions_of(RunConfig).keys() == RunConfig.model_fields.keys()
    assert descriptions_of(Settings).keys() == Settings.model_fields.keys()
