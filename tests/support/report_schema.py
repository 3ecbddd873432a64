"""The published schema, closed: what a report breaks of it."""

import json
from typing import Any

import jsonschema

from pytest_specprobe.report.read import schema_text

SCHEMA = json.loads(schema_text())


def closed(schema: Any) -> Any:
    """The same schema with every object closed: a field without a description is then an error."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: closed(part) for key, part in schema.items()}
    return {"additionalProperties": False, **inside} if "properties" in inside else inside


def problems(document: Any, schema: Any = SCHEMA) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    return [f"{list(e.path)}: {e.message}"[:300] for e in validator.iter_errors(document)]
