"""What would run, for each named drafter: nothing is booted, staged or written."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pytest_specprobe.checkpoint.read import load_target
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.probe.boots import server_spec
from pytest_specprobe.probe.device import Engine, gpus
from pytest_specprobe.probe.named import named_profiles
from pytest_specprobe.probe.preflight import Place, Preflight, preflight
from pytest_specprobe.probe.price import Boot, Price, copied_bytes, rest_of_last_run
from pytest_specprobe.probe.sweep import sharing
from pytest_specprobe.probe.weights import weights_of
from pytest_specprobe.profiles import Profile, load_profiles
from pytest_specprobe.server import memory
from pytest_specprobe.server.boot_times import usual_s
from pytest_specprobe.server.spec import ServerSpec, command, worker_commands
from pytest_specprobe.settings import BOOTED, Settings

_CHECKS = (
    "test_vocab_mapping  invariants of d2t and t2d",
    "test_wiring         every tensor and config key against the target",
    "test_boot           /server_info, log and a canary request prove EAGLE-3 with these settings",
    "test_acceptance     strict accept length, by position; beats the floor and the blind control",
    "test_throughput     tok/s, speedup, break-even, verdict",
)


def plan(settings: Settings, *, server_args: Callable[[Profile], tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of ``--specprobe-plan``.

    :param server_args: the extra flags that a project's conftest.py adds to the servers of a profile.

    :raises ProfileError: if a profile file, a drafter's name, its workload or a server's flags are unusable.
    """
    profiles = load_profiles(settings.root, extra=settings.profiles)
    named = named_profiles(profiles, settings)
    yield f"profiles from {', '.join(str(path) for path in profiles.sources)}"
    for profile in named.values():
        yield ""
        yield from _drafter(profile, settings, preflight(profile, settings), server_args(profile))


def _drafter(profile: Profile, settings: Settings, found: Preflight, extra_args: tuple[str, ...]) -> Iterator[str]:
    drafter, target = profile.drafter, profile.target
    yield f"{profile.name}: drafter {drafter.source} on target {profile.target_name} ({target.model})"
    most = drafter.speculation.depth + 1
    yield f"  speculation   {drafter.speculation} steps/topk/draft tokens: accept length at most {most}"
    yield f"  gate          {', '.join(f'{key} {value}' for key, value in drafter.gate.model_dump().items())}"
    yield f"  workload      {settings.workload or profile.workload}"
    yield f"  baseline      {settings.baseline or target.baseline}"
    if settings.sweep:
        yield f"  sweep         {_sweep(profile, settings)}"
    yield f"  remote code   {'allowed by the profile' if target.trust_remote_code else 'not allowed'}"
    for line in _CHECKS:
        yield f"  check         {line}"
    if settings.server:
        yield f"  server        attach to {settings.server}; it is never stopped"
    elif not settings.static:
        yield from _commands(profile, settings, found, extra_args)
    for culprit, problem in found.problems:
        yield f"  missing       [{culprit}] {problem}"
    yield f"  {'this plan cannot run here yet' if found.problems else 'everything needed is here'}"


def _sweep(profile: Profile, settings: Settings) -> str:
    own = profile.drafter.speculation
    others = tuple(s for s in dict.fromkeys(settings.sweep) if s != own)
    asked = ", ".join(map(str, others)) or "no other setting"
    if settings.server:
        return f"{asked}: lower estimates of shorter chains, since an attached server is not booted again"
    shared = [s for s in sharing(own, (own, *others)) if s != own]
    boots = len(others) - len(shared) + bool(shared)
    how = f", {', '.join(map(str, shared))} on one" if shared else ""
    return f"{asked}: {boots} more boot{'s' * (boots != 1)}, one at a time{how}"


def _price(profile: Profile, settings: Settings, found: Preflight, spec: ServerSpec) -> Price:
    blind = profile.drafter.blind if settings.blind is None else settings.blind
    blind = spec.device == "cpu" if blind is None else blind
    plain = replace(spec, drafter=None, speculation=None)
    boots = [Boot("drafter", usual_s(spec))]
    if blind:
        boots.append(Boot("blind control", usual_s(spec)))
    asked = settings.baseline if settings.baseline is not None else profile.target.baseline
    apart = spec.device != "cpu" and not memory.fits(spec.server_args, servers=2)
    if asked in BOOTED:
        boots.append(Boot("baseline" if asked != "stored" else "baseline, unless a stored one fits", usual_s(plain)))
        if asked == "alternating" or (asked == "boot" and apart):
            boots.append(Boot("drafter again", usual_s(spec)))
    own = profile.drafter.speculation
    others = tuple(s for s in dict.fromkeys(settings.sweep) if s != own)
    shared = [s for s in sharing(own, (own, *others)) if s != own]
    if shared:
        boots.append(Boot("all chains of the sweep", None))
    alone = [other for other in others if other not in shared]
    boots += [Boot(f"sweep {other}", usual_s(replace(spec, speculation=other))) for other in alone]
    return Price(
        boots=tuple(boots),
        rest_s=rest_of_last_run(settings.report, drafter=profile.name),
        gpus=profile.target.tp if spec.device == "cuda" else 0,
        copied=copied_bytes(found.drafter, blind=blind),
    )


def _commands(profile: Profile, settings: Settings, found: Preflight, extra_args: tuple[str, ...]) -> Iterator[str]:
    place = found.place or _assumed(profile, settings)
    target = str(found.target or profile.target.model)
    spec = server_spec(
        profile,
        target=target,
        drafter=Path("STAGED") / profile.name,
        place=place,
        mla=_mla(found.target),
        extra_args=extra_args,
    )
    yield from _price(profile, settings, found, spec).lines(source=settings.report)
    held = weights_of(found.target, found.drafter, tp=spec.tp, gpus_mib=[gpu.memory_mib for gpu in place.gpus])
    if held is not None and spec.device == "cuda":
        yield from held.lines()
    yield f"  server        {shlex.join(command(spec, host='127.0.0.1', port=0))}"
    yield "                (STAGED: a copy of its own, max_position_embeddings patched; port 0: a free one)"
    for rank, words in enumerate(worker_commands(spec), start=1):
        yield f"  node {rank}        {shlex.join(words)}"
        yield "                (to be started there by hand, with the same files at the same places)"


def _mla(target: Path | None) -> bool:
    """Tell whether the target has latent attention; a target that is not there or unreadable is told elsewhere."""
    try:
        return target is not None and load_target(target).mla
    except CheckpointError:
        return False


def _assumed(profile: Profile, settings: Settings) -> Place:
    """Return where it would run if what is missing were there."""
    wanted = "cpu" if settings.device == "cpu" else profile.target.devices[0]
    return Place(wanted, Engine(settings.python or Path("python"), None), gpus())
