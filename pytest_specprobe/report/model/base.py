"""What every part of report.json is made of: the base class, numbers, lists and words."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, JsonValue, WithJsonSchema
from pydantic_core import CoreSchema

T = TypeVar("T")


class Model(BaseModel):
    """A part of the report: frozen, exact about types and about names. Undefined is None, never 0 or -1."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
        from_attributes=True,
    )

    def document(self) -> dict[str, JsonValue]:
        """Return it as JSON, with every field; what was made unchecked is as it was made."""
        return self.model_dump(mode="json", by_alias=True, warnings=False)


class _Absent:
    """Lets a field that older reports lack be absent (None here), and refuses a null in its place."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        whole: Any = handler(source)
        inner: CoreSchema = whole["schema"]
        return inner


Added = Annotated[T | None, _Absent()]
"""A field that came with a later version: None where a report is older, never null in a file."""

# A list of JSON, held unchangeable; what is in it is as strict as all else.
Items = Annotated[tuple[T, ...], Field(strict=False)]
Pair = Annotated[tuple[JsonValue, ...], Field(strict=False, min_length=2, max_length=2)]

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
# A whole number stays one, so that a report is written as it was read.
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
Amount = Annotated[int | float, Field(ge=0), WithJsonSchema({"type": "number", "minimum": 0})]

Slug = Annotated[str, Field(pattern=r"^[a-z]+\.[a-z0-9-]+$")]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]

Verdict = Literal["broken", "uncorrelated", "profitable", "verify-bound", "finetune", "undecided"]
Trend = Literal["regressed", "improved", "steady", "cannot tell"]
GateResult = Literal["pass", "fail", "inconclusive", "error"]
