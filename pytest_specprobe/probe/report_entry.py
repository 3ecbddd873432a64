"""A drafter's entry of report.json."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pytest_specprobe.checkpoint.files.digest import text_digest, writes_the_date
from pytest_specprobe.decide.outlook import outlook
from pytest_specprobe.errors import CheckpointError, MeasurementError
from pytest_specprobe.measure.compare import Ranking, compare_acceptance, compare_speed
from pytest_specprobe.probe.measured import Measured
from pytest_specprobe.probe.run import ProbeRun, State
from pytest_specprobe.report import build
from pytest_specprobe.report.build import as_model
from pytest_specprobe.report.model.report import Comparison, Digests, DrafterReport, Workload
from pytest_specprobe.report.model.servers import ServerReport, Staging
from pytest_specprobe.report.model.sweep import SweepArm
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.spec import values_of

R = TypeVar("R")


def entry(run: ProbeRun, state: State) -> DrafterReport:
    """Return what is known about a drafter so far; whatever was not measured is None."""
    profile, measured, gate = run.profile, state.measured, run.profile.drafter.gate
    acceptance, throughput, lossless = measured.acceptance, measured.throughput, measured.losslessness()
    point = measured.break_even(p_reach=gate.p_reach)
    length = acceptance and acceptance.accept_length.value
    look = outlook(point, accept_length=length, min_headroom=gate.min_headroom) if point and length else None
    predicted = measured.predicted()
    sweep: tuple[SweepArm, ...] = ()
    if measured.sweep and acceptance:
        sweep = build.sweep_of(measured.sweep, probe=acceptance, predicted=predicted, gate=gate)
    return as_model(
        DrafterReport,
        state.decision,
        name=profile.name,
        target=profile.target_name,
        speculation=profile.drafter.speculation,
        digests=_digests(run),
        phases=run.phases.phases,
        checks=state.findings,
        staging=_staging(run),
        server=_server(run),
        workload=_workload(run, measured),
        invalid=tuple(error.what for error in measured.errors),
        acceptance=acceptance and build.acceptance_of(acceptance),
        sampled=measured.sampled and build.sampled_of(measured.sampled),
        throughput=throughput and build.throughput_of(throughput, measured.curve),
        break_even=point and build.break_even_of(point),
        outlook=look and build.outlook_of(look),
        losslessness=lossless and build.losslessness_of(lossless),
        sweep=sweep,
        sweep_best=measured.sweep and build.sweep_best_of(measured.sweep),
        predicted=tuple(map(build.predicted_of, predicted)),
        history=None,
    )


def _workload(run: ProbeRun, measured: Measured) -> Workload | None:
    workload = measured.workload
    if workload is None:
        return None
    return as_model(
        Workload,
        run.profile.target,
        name=workload.name,
        digest=workload.digest,
        prompts=len(workload.chats),
        rendered=measured.rendered,
        undated=_undated(run) if measured.rendered else None,
        cut=sum(g.finish_reason == "length" for g in measured.texts),
    )


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


def _digests(run: ProbeRun) -> Digests:
    checked = run.files.peek_checkpoint()
    if checked is None:
        return Digests(drafter=None, target=None)
    return Digests(drafter=checked.drafter_digest, target=checked.target_digest)


def _staging(run: ProbeRun) -> Staging | None:
    staged = run.files.peek_staged()
    return None if staged is None else as_model(Staging, staged, patched=dict(staged.patched))


def _server(run: ProbeRun) -> ServerReport | None:
    server: Server | None = run.servers.drafter
    if server is None:
        return None
    info = run.servers.proofs.info
    return as_model(
        ServerReport,
        server,
        version=info and info.version,
        torch=run.servers.torch(),
        device=run.servers.device,
        local_device=server.device or None,
        host=None if server.vouched else urlsplit(server.url).hostname,
        environment=server.environment and dict(server.environment),
        flags=info and dict(info.settings),
        baseline_differences=run.servers.proofs.differences(),
    )


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


def comparisons(states: Mapping[ProbeRun, State]) -> tuple[Comparison, ...]:
    """Return, for each target that several measured drafters share, who wins by accept length and by speed."""
    by_target: dict[str, dict[str, Measured]] = {}
    for run, state in states.items():
        if state.measured.acceptance is not None:
            by_target.setdefault(run.profile.target_name, {})[run.profile.name] = state.measured
    return tuple(_comparison(target, together) for target, together in by_target.items() if len(together) > 1)


def _comparison(target: str, together: Mapping[str, Measured]) -> Comparison:
    lengths = {name: m.acceptance.prompts for name, m in together.items() if m.acceptance}
    speeds = {name: m.throughput.prompts for name, m in together.items() if m.throughput}
    return as_model(
        Comparison,
        target=target,
        accept_length=_ranking(compare_acceptance, lengths),
        speed=_ranking(compare_speed, speeds),
    )


def _ranking(
    compare: Callable[[Mapping[str, Sequence[R]]], Ranking], rows: Mapping[str, Sequence[R]]
) -> Ranking | None:
    """Return a ranking, or None where the drafters share too few prompts (each says why for itself)."""
    try:
        return compare(rows)
    except MeasurementError:
        return None
