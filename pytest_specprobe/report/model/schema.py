"""The published JSON Schema of report.json, made from the models.

``python -m pytest_specprobe.report.model.schema`` prints it, for ``report/schema/report.schema.json``.
"""

import json
import re
import sys
from typing import Any

from pytest_specprobe.report.model.estimate import Estimate
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.model.servers import ServerReport

# Names that the schema had before the models; a user's reader may refer to them.
_NAMES = {DrafterReport.__name__: "drafter", ServerReport.__name__: "server"}
_CLOSED = {Estimate.__name__}
_ANY = "JsonValue"


def schema_of_models() -> str:
    """Return the schema as text, as it is committed.

    Objects are open where the models are closed: a report of a later version may have more fields.
    """
    raw = Report.model_json_schema(ref_template="{model}")
    parts = {
        _name(model): _open(part, closed=model in _CLOSED)
        for model, part in raw.pop("$defs").items()
        if model != _ANY
    }
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "report.json of pytest-specprobe",
        **_open(raw, closed=False),
        "$defs": parts,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _name(model: str) -> str:
    """Return a model's name in the schema: ``SpeedRow`` is ``speed_row``."""
    return _NAMES.get(model) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", model).lower()


def _open(part: dict[str, Any], *, closed: bool) -> dict[str, Any]:
    """Return an object's schema with its fields' own words alone: no titles, no defaults of Python."""
    fields = {name: _field(field) for name, field in part["properties"].items()}
    words = {"type": "object", "description": " ".join(part["description"].split()), "required": part["required"]}
    return {**words, "properties": fields, **({"additionalProperties": False} if closed else {})}


def _field(part: Any) -> Any:
    if isinstance(part, list):
        return [_field(one) for one in part]
    if not isinstance(part, dict):
        return part
    if part.get("$ref") == _ANY:
        return {}
    inside = {key: _field(value) for key, value in part.items() if key not in {"title", "default"}}
    return {**inside, "$ref": f"#/$defs/{_name(inside['$ref'])}"} if "$ref" in inside else inside


if __name__ == "__main__":
    sys.stdout.write(schema_of_models())
