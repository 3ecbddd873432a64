"""A drafter's entry of report.json."""

from typing import Any

from pytest_specprobe.errors import MeasurementError, ProbeImpossible
from pytest_specprobe.probe.run import ProbeRun
from pytest_specprobe.server.boot import Server


def entry(run: ProbeRun, *, narrowed: bool) -> dict[str, Any]:
    """Return what is known about a drafter so far; whatever was not measured is None.

    :param narrowed: the run was asked for less than a verdict (``--specprobe-static``, ``-k``), so none is given.
    """
    decision = run.decision().to_json()
    impossible = [e for e in run.errors if isinstance(e, ProbeImpossible)]
    if impossible and decision["verdict"] is None:
        decision["gate"] = "error"
        decision["reasons"] = [e.what.partition("\n")[0] for e in impossible]
        decision["next"] = [e.fix for e in impossible]
    elif narrowed and decision["verdict"] is None:
        decision["gate"] = None
        decision["reasons"] = ["narrowed run: acceptance was not asked for, so there is no verdict"]
    measured = run.measured()
    return {
        "name": run.profile.name,
        "target": run.profile.target_name,
        **decision,
        "invalid": [e.what for e in run.errors if isinstance(e, MeasurementError)],
        "phases": [phase.to_json() for phase in run.phases.phases],
        "checks": [finding.to_json() for finding in run.findings()],
        "staging": _staging(run),
        "server": _server(run),
        "workload": measured.workload,
        "acceptance": measured.acceptance and measured.acceptance.to_json(),
        "throughput": measured.throughput and measured.throughput.to_json(),
        "break_even": measured.break_even and measured.break_even.to_json(),
        "losslessness": measured.losslessness and measured.losslessness.to_json(),
        "predicted": [],
        "sweep": [],
    }


def _staging(run: ProbeRun) -> dict[str, Any] | None:
    staged = run.files.peek_staged()
    if staged is None:
        return None
    return {
        "source_digest": staged.source_digest,
        "patched": {key: list(change) for key, change in staged.patched.items()},
    }


def _server(run: ProbeRun) -> dict[str, Any] | None:
    server: Server | None = run.servers.drafter
    if server is None:
        return None
    info = run.servers.peek_info()
    return {
        "version": info and info.version,
        "command": server.command and list(server.command),
        "boot_s": server.boot_s,
        "device": run.servers.device,
        "flags": info and dict(info.settings),
        "scrubbed": list(server.scrubbed),
        "baseline_differences": run.servers.baseline_differences(),
    }


def properties(run: ProbeRun) -> list[tuple[str, object]]:
    """Return the JUnit properties of a test of this drafter: what is known when it ends."""
    decision, measured = run.decision(), run.measured()
    found: list[tuple[str, object]] = [("specprobe_drafter", run.profile.name)]
    if decision.verdict is not None:
        found.append(("specprobe_verdict", decision.verdict))
    if measured.acceptance is not None:
        found.append(("specprobe_accept_length", round(measured.acceptance.accept_length.value, 4)))
    if measured.throughput is not None:
        found.append(("specprobe_tok_per_s", round(measured.throughput.tok_per_s.value, 4)))
    return found
