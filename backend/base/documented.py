"""Field descriptions for JSON schemas, taken from the docstrings below the fields of a model.

They are read when a schema is requested. pydantic's `use_attribute_docstrings` would read the source of each
model when it is defined, which takes a large part of the processor time that the service needs to start.
"""

import ast
import sys
import threading
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc, get_annotations, getsource
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function


class Documented(BaseModel):
    """A model whose JSON schema describes each field with the docstring below it."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        descriptions = field_descriptions(cls)
        for name, property_schema in properties.items():
            if name in descriptions:
                property_schema.setdefault("description", descriptions[name])
        return schema


def _as_whole_number(value: Any) -> Any:
    """Return 1000.0 as 1000, because they are the same number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _make_strict(schema: Any) -> None:
    subschemas = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and schema.get("type") in ("int", "float", "bool"):
        if schema["type"] == "int" and not schema.get("strict"):
            strict_schema = no_info_before_validator_function(_as_whole_number, {**schema, "strict": True})
            schema.clear()
            schema.update(strict_schema)
            return
        schema["strict"] = True
    for subschema in subschemas:
        if isinstance(subschema, dict | list | tuple):
            _make_strict(subschema)


class StrictNumbers(Documented):
    """A model of untrusted input, which does not convert between strings, booleans and numbers."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _make_strict(schema)
        return schema


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a model, including inherited fields, by field name."""
    descriptions: dict[str, str] = {}
    models = [
        base_model
        for base_model in model.__mro__
        if issubclass(base_model, BaseModel) and base_model is not BaseModel
    ]
    for base_model in reversed(models):
        descriptions |= dict.fromkeys(get_annotations(base_model), "")
        descriptions |= _module_descriptions(base_model.__module__).get(base_model.__qualname__, {})
    return {name: text for name, text in descriptions.items() if text and name in model.model_fields}


_PARSING = threading.Lock()
"""Lock of the parser: threads of CPython 3.11 share its recursion depth, and one of them may fail
(python/cpython#106905).
"""


@cache
def _module_descriptions(name: str) -> dict[str, dict[str, str]]:
    """Return the field docstrings of each class of a module, by the qualified name of the class."""
    try:
        source = getsource(sys.modules[name])
        with _PARSING:
            tree = ast.parse(source)
    except (KeyError, OSError, TypeError, SyntaxError):  # the source file is missing or is being replaced
        return {}
    return dict(_class_descriptions(tree, ""))


def _class_descriptions(tree: ast.AST, outer_name: str) -> Iterator[tuple[str, dict[str, str]]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            qualified_name = f"{outer_name}{node.name}"
            yield qualified_name, dict(_field_descriptions(node.body))
            yield from _class_descriptions(node, f"{qualified_name}.")


def _field_descriptions(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, next_statement in pairwise(body):
        match field, next_statement:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, cleandoc(text)
