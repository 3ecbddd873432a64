"""Whole probes of the product on servers that answer from a simulated world: no process, no socket, no real clock.

The seams are low, where the product meets the machine: finding files, staging, booting, attaching, the clocks and
the counters of CPU time. All above them runs as it is shipped, from passes to findings, decision and report.json.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pytest_specprobe.errors import BootError, SpecprobeError
from pytest_specprobe.findings import Finding
from pytest_specprobe.probe.plan.device import Engine
from pytest_specprobe.probe.plan.named_profiles import named_profiles
from pytest_specprobe.probe.plan.preflight import Place, Preflight
from pytest_specprobe.probe.printed_plan import DrafterPlan
from pytest_specprobe.probe.report_entry import properties
from pytest_specprobe.probe.session import ProbeSession
from pytest_specprobe.profiles import Speculation, load_profiles
from pytest_specprobe.report.model import servers as record_servers
from pytest_specprobe.server.gpu.nvidia_smi import Gpu
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.settings import Settings
from pytest_specprobe.staging import Staged
from tests.characterization.adapter_servers import FIXTURES, PLAIN_URL, URL, Booted, Client, Machine, Script, attached
from tests.characterization.world import prompt_id

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
PROFILE = """
[targets.t]
model = "fixtures://mini_k25"
devices = ["cuda", "cpu"]
workload = "few.jsonl"
{target}

[drafters.{name}]
source = "fixtures://aq_k2_mini"
target = "t"
speculation = {{ num_steps = {steps}, eagle_topk = {topk}, num_draft_tokens = {tokens} }}
{drafter}
gate = {{ {gate} }}
"""
MACHINE = record_servers.Machine(
    cpu="a CPU", cores=8, memory_gib=64.0, system="Linux 6", python="3.11.9", gpus=(), gpu_driver=None
)


def _boot(machine: Machine, spec: Any, *, label: str = "", again: Any = None, **_: Any) -> Any:
    kind = "drafter" if spec.drafter is not None else "baseline"
    if spec.drafter is not None and spec.drafter.name == "blind":
        kind = "blind"
    elif spec.candidates:
        kind = "shared"
    elif spec.speculation is not None and str(spec.speculation) != machine.script.speculation:
        kind = "arm"
    machine.turns.append([f"boot {kind} {spec.speculation}{' again' if again is not None else ''}"])
    machine.now_ns += 10**10
    if kind in machine.script.dies:
        raise BootError(machine.script.dies[kind], culprit="engine", fix="read the log")
    return again or Booted(Client(machine, label, kind, spec.speculation), device=spec.device)


def _attach(machine: Machine, url: str) -> Any:
    plain = url == PLAIN_URL
    steps, topk, tokens = map(int, machine.script.speculation.split("/"))
    own = None if plain else Speculation(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    return attached(Client(machine, machine.script.names[0], "baseline" if plain else "drafter", own))


def _stage(_: Path, *, cache: Path, target_positions: int | None, blind: bool = False) -> Staged:
    path = Path("/staged") / ("blind" if blind else "drafter")
    patched = {"max_position_embeddings": (1024, target_positions)}
    return Staged(path=path, source=Path("/models/d"), source_digest="ab" * 32, patched=patched, blind=blind)


def _preflight(script: Script, settings: Settings) -> Preflight:
    gpu = Gpu("NVIDIA H200", 143771, "570.1")
    place = Place(
        script.device,  # type: ignore[arg-type]  # "cpu" or "cuda"
        Engine(Path("/venv/bin/python"), "0.5.23", "2.9.1"),
        (gpu,) if script.device == "cuda" else (),
    )
    owned = settings.server is None and not settings.static
    return Preflight(FIXTURES / "aq_k2_mini", FIXTURES / "mini_k25", place if owned else None, script.problems)


class _Now(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> "_Now":
        return cls(*NOW.timetuple()[:6], tzinfo=UTC)


@contextlib.contextmanager
def _machine(script: Script, *, snapshots: bool = False) -> Iterator[Machine]:
    """The seams: everything below is the machine's, and answers from the script meanwhile."""
    machine = Machine(script)
    clock = SimpleNamespace(perf_counter=machine.seconds, monotonic=machine.seconds)
    package = "pytest_specprobe."
    with contextlib.ExitStack() as seams:

        def seam(name: str, value: Any) -> None:
            seams.enter_context(mock.patch(package + name, value))

        seams.enter_context(mock.patch.dict(os.environ, {"PATH": "/usr/bin", "HOME": "/home/you"}, clear=True))
        seams.enter_context(mock.patch("psutil.cpu_count", return_value=8))
        seam("measure.checks.busy_machine.CpuTime.now", machine.cpu)
        seam("probe.servers.booter.boot", lambda spec, **more: _boot(machine, spec, **more))
        seam("probe.servers.booter.gpus_of", lambda *_: ())
        seam("probe.servers.probe_servers.attach", lambda url, **_: _attach(machine, url))
        seam("probe.files.clear", lambda *_, **__: ())
        seam("probe.files.preflight", lambda _, settings: _preflight(script, settings))
        seam("probe.files.inspect", lambda *_, **__: script.static)
        seam("probe.files.stage", _stage)
        seam("probe.files.digest", lambda path: ("d1" if path.name == "aq_k2_mini" else "7a") * 32)
        seam("probe.servers.stored_baselines.datetime", _Now)
        seam("probe.servers.stored_baselines.machine", lambda **_: MACHINE)
        seam("probe.session.gpus", lambda: ())
        if not snapshots:
            # they tell how far a run came; the last report holds all of it
            seam("probe.session.ProbeSession._changed", lambda *_: None)
        seam("report.file.datetime", _Now)
        seam("report.file.machine", lambda **_: MACHINE)
        seam("report.file.version", lambda _: "1.2.3")
        seam("measure.passes.time", clock)
        seam("probe.phases.time", clock)
        yield machine


def _settings(script: Script, folder: Path) -> Settings:
    asked: dict[str, Any] = {
        "drafters": script.names,
        "root": folder,
        "profiles": None,
        "report": folder / "out",
        "server": None,
        "baseline": None,
        "blind": None,
        "workload": None,
        "concurrency": (1,),
        "temperature": None,
        "sweep": (),
        "static": False,
        "device": script.device,
        "python": None,
        "boot_timeout_s": None,
    }
    chosen = dict(script.options)
    if "sweep" in chosen:
        chosen["sweep"] = tuple(
            Speculation(num_steps=s, eagle_topk=k, num_draft_tokens=t)
            for s, k, t in (map(int, text.split("/")) for text in chosen["sweep"])
        )
    return Settings(**(asked | chosen))


def _write_project(script: Script, folder: Path) -> None:
    steps, topk, tokens = script.speculation.split("/")
    first = PROFILE.partition("[drafters")[0].format(target=script.target)
    drafters = (
        PROFILE[PROFILE.index("[drafters") :].format(
            name=name, steps=steps, topk=topk, tokens=tokens, drafter=script.drafter, gate=script.gate
        )
        for name in script.names
    )
    (folder / "specprobe.toml").write_text(first + "\n".join(drafters))
    chats = [
        {"id": prompt_id(i), "workload": prompt_id(i).partition("-")[0], "prompt": "Why so " + "very " * i + "?"}
        for i in range(script.world.prompts)
    ]
    (folder / "few.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))


def _run(session: ProbeSession, name: str, steps: Sequence[str]) -> list[str]:
    run = session.run(name)
    asked: dict[str, Callable[[], object]] = {
        "files": run.files.checkpoint,
        "server": run.servers.server,
        "acceptance": run.acceptance,
        "sampled": run.sampled,
        "throughput": run.throughput,
        "curve": run.curve,
        "sweep": run.sweep,
    }
    errors = []
    for step in steps:
        try:
            asked[step]()
        except SpecprobeError as error:
            errors.append(f"{step}: {error}")
    return errors


def probe(script: Script, folder: Path, *, snapshots: bool = False) -> dict[str, Any]:
    """Run a script in ``folder``; return report.json, what JUnit gets of it, and what the servers were asked."""
    _write_project(script, folder)
    with _machine(script, snapshots=snapshots) as machine:
        for _ in range(1 + script.again):
            said: list[str] = []
            session = ProbeSession(_settings(script, folder), say=said.append, server_args=lambda _: ())
            errors = [error for name in script.names for error in _run(session, name, script.steps)]
            if not script.narrowed:
                session.wanted.update(script.names)
            shown = {name: properties(session.run(name)) for name in script.names}
            info = {name: _benchmark(session, name) for name in script.names if "throughput" in script.steps}
            session.finish()
    text = (folder / "out" / "report.json").read_text(encoding="utf-8")
    kept = folder / "out" / "baselines.jsonl"
    places = {str(folder): "FOLDER", str(FIXTURES): "FIXTURES"}
    found: dict[str, Any] = {
        "report": json.loads(text),
        "properties": {name: [list(pair) for pair in pairs] for name, pairs in shown.items()},
        "errors": errors,
        "benchmark": info,
        "calls": machine.calls(),
        "notes": [line for line in said if "stored" in line or "booted in turn" in line or "one boot per" in line],
        "stored baselines": [
            {name: line[name] for name in ("created", "tok_per_s", "first_token_s", "rows")}
            for line in map(json.loads, kept.read_text().splitlines() if kept.exists() else ())
        ],
    }
    whole = json.dumps(found)
    for place, called in places.items():
        whole = whole.replace(place, called)
    back: dict[str, Any] = json.loads(whole)
    return back


def planned(script: Script, folder: Path) -> dict[str, list[tuple[str, bool]]]:
    """What ``--specprobe-plan`` says would boot, by drafter, and whether the run may spare it."""
    _write_project(script, folder)
    settings = _settings(script, folder)
    up: set[ServerSpec] = set()
    boots = {}
    with _machine(script):
        for name, profile in named_profiles(load_profiles(folder, extra=None), settings).items():
            found = DrafterPlan(profile, settings, _preflight(script, settings), ()).boots(up=up)
            up |= {boot.spec for boot in found if boot.stays}
            boots[name] = [(boot.what, boot.unsure) for boot in found]
    return boots


def _benchmark(session: ProbeSession, name: str) -> Any:
    try:
        return session.run(name).benchmark_info(streams=1)
    except SpecprobeError as error:
        return error.what


__all__ = ["PLAIN_URL", "URL", "Finding", "Script", "planned", "probe"]
