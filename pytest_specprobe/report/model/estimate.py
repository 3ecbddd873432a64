"""An estimate: a value with its interval."""

from pydantic import Field

from pytest_specprobe.report.model.base import Count, Model, Number


class Estimate(Model):
    """A value with its 95 % interval, bootstrapped over prompts."""

    value: Number
    low: Number
    high: Number
    n: Count = Field(
        description="Prompts behind the value; 0 for a declared number, which has no interval of its own."
    )
