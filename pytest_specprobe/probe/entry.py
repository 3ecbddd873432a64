"""A drafter's entry of report.json."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pytest_specprobe.checkpoint.digest import text_digest, writes_the_date
from pytest_specprobe.decide.outlook import outlook
from pytest_specprobe.decide.sweep import sweep_best, sweep_rows
from pytest_specprobe.errors import CheckpointError, MeasurementError
from pytest_specprobe.measure.compare import Ranking, compare_acceptance, compare_speed
from pytest_specprobe.probe.measured import Measured
from pytest_specprobe.probe.run import ProbeRun, State
from pytest_specprobe.profiles import Gate
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.spec import values_of

R = TypeVar("R")


def entry(run: ProbeRun, state: State) -> dict[str, Any]:
    """Return what is known about a drafter so far; whatever was not measured is None."""
    return {
        "name": run.profile.name,
        "target": run.profile.target_name,
        **state.decision.to_json(),
        "speculation": run.profile.drafter.speculation.model_dump(),
        "digests": _digests(run),
        "phases": [phase.to_json() for phase in run.phases.phases],
        "checks": [finding.to_json() for finding in state.findings],
        "staging": _staging(run),
        "server": _server(run),
        "workload": _workload(run, state.measured),
        **_measured(state.measured, run.profile.drafter.gate),
        "history": None,
    }


def _measured(measured: Measured, gate: Gate) -> dict[str, Any]:
    throughput = measured.throughput
    point, lossless = measured.break_even(p_reach=gate.p_reach), measured.losslessness()
    look = None
    if point is not None and measured.acceptance is not None:
        length = measured.acceptance.accept_length.value
        look = outlook(point, accept_length=length, min_headroom=gate.min_headroom).to_json()
    curve = None if measured.curve is None else measured.curve.to_json()
    return {
        "invalid": [error.what for error in measured.errors],
        "acceptance": measured.acceptance and measured.acceptance.to_json(),
        "sampled": measured.sampled and measured.sampled.to_json(),
        "throughput": throughput and {**throughput.to_json(), "curve": curve},
        "break_even": point and point.to_json(),
        "outlook": look,
        "losslessness": lossless and lossless.to_json(),
        "sweep": _sweep(measured, gate),
        "sweep_best": measured.sweep and sweep_best(measured.sweep),
        "predicted": [bracket.to_json() for bracket in measured.predicted()],
    }


def _sweep(measured: Measured, gate: Gate) -> list[dict[str, Any]]:
    if measured.sweep is None or measured.acceptance is None:
        return []
    return sweep_rows(measured.sweep, probe=measured.acceptance, predicted=measured.predicted(), gate=gate)


def _workload(run: ProbeRun, measured: Measured) -> dict[str, Any] | None:
    workload, target = measured.workload, run.profile.target
    if workload is None:
        return None
    return {
        "name": workload.name,
        "digest": workload.digest,
        "prompts": len(workload.chats),
        "rendered": measured.rendered,
        "undated": _undated(run) if measured.rendered else None,
        "thinking": target.thinking,
        "max_new_tokens": target.max_new_tokens,
        "cut": sum(g.finish_reason == "length" for g in measured.texts),
    }


def _undated(run: ProbeRun) -> str | None:
    """Return what tells the rendered prompts where they hold the date; None where they do not, or nobody knows."""
    checked, server = run.files.peek_checkpoint(), run.servers.drafter
    if checked is None or server is None:
        return None
    told = values_of(server.command or (), "--chat-template", "--tokenizer-path")
    target, others = checked.target.path, [Path(place) for place in told]
    try:
        return text_digest(target, others=others) if writes_the_date(target, others=others) else None
    except CheckpointError:
        return None


def _digests(run: ProbeRun) -> dict[str, str | None]:
    checked = run.files.peek_checkpoint()
    return {
        "drafter": checked.drafter_digest if checked else None,
        "target": checked.target_digest if checked else None,
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
    info = run.servers.proofs.info
    return {
        "version": info and info.version,
        "torch": run.servers.torch(),
        "command": server.command and list(server.command),
        "boot_s": server.boot_s,
        "device": run.servers.device,
        "local_device": server.device or None,
        "host": None if server.vouched else urlsplit(server.url).hostname,
        "environment": server.environment and dict(server.environment),
        "flags": info and dict(info.settings),
        "scrubbed": list(server.scrubbed),
        "baseline_differences": run.servers.proofs.differences(),
    }


def properties(run: ProbeRun) -> list[tuple[str, object]]:
    """Return the JUnit properties of a test of this drafter: what is known when it ends."""
    state = run.state()
    decision, measured = state.decision, state.measured
    found: list[tuple[str, object]] = [("specprobe_drafter", run.profile.name)]
    if decision.verdict is not None:
        found.append(("specprobe_verdict", decision.verdict))
    if measured.acceptance is not None:
        found.append(("specprobe_accept_length", round(measured.acceptance.accept_length.value, 4)))
    if measured.throughput is not None:
        found.append(("specprobe_tok_per_s", round(measured.throughput.tok_per_s.value, 4)))
    return found


def comparisons(states: Mapping[ProbeRun, State]) -> list[dict[str, Any]]:
    """Return, for each target that several measured drafters share, who wins by accept length and by speed."""
    by_target: dict[str, dict[str, Measured]] = {}
    for run, state in states.items():
        if state.measured.acceptance is not None:
            by_target.setdefault(run.profile.target_name, {})[run.profile.name] = state.measured
    found = []
    for target, together in by_target.items():
        if len(together) < 2:
            continue
        lengths = {name: m.acceptance.prompts for name, m in together.items() if m.acceptance}
        speeds = {name: m.throughput.prompts for name, m in together.items() if m.throughput}
        found.append(
            {
                "target": target,
                "accept_length": _ranking(compare_acceptance, lengths),
                "speed": _ranking(compare_speed, speeds),
            }
        )
    return found


def _ranking(compare: Callable[[Mapping[str, Sequence[R]]], Ranking], rows: Mapping[str, Sequence[R]]) -> Any:
    """Return a ranking, or None where the drafters share too few prompts (each says why for itself)."""
    try:
        return compare(rows).to_json()
    except MeasurementError:
        return None
