"""Findings, phases and gate conditions."""

from typing import Literal

from pydantic import Field

from pytest_specprobe.report.model.base import Amount, Model, Slug


class Finding(Model):
    """One check and how it ended."""

    id: Slug = Field(description="Slug by room; never changes meaning.")
    severity: Literal["error", "warning", "info"]
    status: Literal["pass", "fail", "skip"]
    culprit: Literal[
        "drafter-file", "drafter-config", "launch-flags", "engine", "target", "workload", "machine", "harness"
    ]
    seen: str
    expected: str
    why: str
    fix: str


class Phase(Model):
    """One phase of a drafter's probe, and the seconds it took."""

    name: Literal["free", "inspect", "stage", "patch", "boot", "prove", "warm up", "probe", "decide", "record"]
    what: str = Field(description="Tells apart the boots and passes of one probe: drafter, blind control, baseline.")
    status: Literal["running", "done", "failed"]
    seconds: Amount


class GateCheck(Model):
    """One condition of the gate, and how it ended."""

    name: str = Field(description="The profile's gate key.")
    result: Literal["pass", "fail", "inconclusive"]
    seen: str
    wanted: str
