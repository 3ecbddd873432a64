"""What would run, for each named drafter: nothing is booted, staged or written."""

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_specprobe.checkpoint.files.read import load_target
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.probe.files import digest_of
from pytest_specprobe.probe.plan.boots import (
    PlannedBoot,
    Wishes,
    asked_baseline,
    other_settings,
    planned_boots,
    sharing,
    sweep_boots,
    wants_blind,
    without_speculation,
)
from pytest_specprobe.probe.plan.cost import Boot, Price, copied_bytes, rest_of_last_run
from pytest_specprobe.probe.plan.device import Engine
from pytest_specprobe.probe.plan.named_profiles import named_profiles
from pytest_specprobe.probe.plan.needs import unreadable_files
from pytest_specprobe.probe.plan.preflight import Place, Preflight, preflight
from pytest_specprobe.probe.plan.weights import weights_of
from pytest_specprobe.probe.servers.booter import server_spec
from pytest_specprobe.probe.servers.stored_baselines import question_of, stored_baseline
from pytest_specprobe.profiles import Profile, load_profiles
from pytest_specprobe.server.boot_times import usual_s
from pytest_specprobe.server.gpu.nvidia_smi import gpus
from pytest_specprobe.server.spec import ServerSpec, command, worker_commands
from pytest_specprobe.settings import Settings

CHECKS = (
    "test_vocab_mapping  invariants of d2t and t2d",
    "test_wiring         every tensor and config key against the target",
    "test_boot           /server_info, log and a canary request prove EAGLE-3 with these settings",
    "test_acceptance     strict accept length, by position; beats the floor and the blind control",
    "test_throughput     tok/s, speedup, break-even, verdict",
    "test_history        no loss against earlier runs, where the gate sets max_regression",
)


def plan(settings: Settings, *, server_args: Callable[[Profile], tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of ``--specprobe-plan``.

    :param server_args: the extra flags that a project's conftest.py adds to the servers of a profile.

    :raises ProfileError: if a profile file, a drafter's name, its workload or a server's flags are unusable.
    """
    profiles = load_profiles(settings.root, extra=settings.profiles)
    named = named_profiles(profiles, settings)
    yield f"profiles from {', '.join(str(path) for path in profiles.sources)}"
    baselines: set[ServerSpec] = set()
    for profile in named.values():
        drafter = DrafterPlan(profile, settings, preflight(profile, settings), server_args(profile))
        boots = drafter.boots(up=baselines)
        baselines |= {boot.spec for boot in boots if boot.stays}
        yield ""
        yield from drafter.lines(boots)


@dataclass(frozen=True)
class DrafterPlan:
    """One drafter's part of the plan. What is missing on this machine is assumed to be as the profile says."""

    profile: Profile
    settings: Settings
    preflight: Preflight
    extra_args: tuple[str, ...]

    @cached_property
    def place(self) -> Place:
        """Where the servers run."""
        return self.preflight.place or _assumed(self.profile, self.settings)

    @cached_property
    def spec(self) -> ServerSpec:
        """The drafter's server."""
        return server_spec(
            self.profile,
            target=str(self.preflight.target or self.profile.target.model),
            drafter=Path("STAGED") / self.profile.name,
            place=self.place,
            mla=_mla(self.preflight.target),
            extra_args=self.extra_args,
        )

    @property
    def blind(self) -> bool:
        """Whether a blind control is staged and booted."""
        return wants_blind(self.profile, self.settings, device=self.spec.device)

    def boots(self, *, up: Collection[ServerSpec]) -> tuple[PlannedBoot, ...]:
        """Return what would boot, with the baselines ``up`` of the drafters before."""
        if self.settings.static:
            return ()
        asked = asked_baseline(self.profile, self.settings)
        attached = self.settings.server is not None
        wishes = Wishes(
            spec=self.spec,
            attached=attached,
            baseline=asked,
            stored=self._stored() if asked == "stored" and not attached else False,
            blind=self.blind,
            levels=len(self.settings.concurrency),
            sweep=self.settings.sweep,
        )
        return planned_boots(wishes, up=up)

    def _stored(self) -> bool | None:
        """Tell whether a baseline of this run's question is stored; None where a part of that is not known."""
        workload = load_workload(self.settings.workload or self.profile.workload, root=self.settings.root)
        question = question_of(
            self.profile,
            self.settings,
            place=self.preflight.place,
            target=digest_of(self.preflight.target),
            workload=workload.digest,
        )
        if question is None:
            return None
        return stored_baseline(self.settings.report, without_speculation(self.spec), question) is not None

    def lines(self, boots: Sequence[PlannedBoot]) -> Iterator[str]:
        """Yield the drafter's lines; ``boots`` is what would boot."""
        profile, settings = self.profile, self.settings
        drafter, target = profile.drafter, profile.target
        yield f"{profile.name}: drafter {drafter.source} on target {profile.target_name} ({target.model})"
        most = drafter.speculation.depth + 1
        yield f"  speculation   {drafter.speculation} steps/topk/draft tokens: accept length at most {most}"
        yield f"  gate          {', '.join(f'{key} {value}' for key, value in drafter.gate.model_dump().items())}"
        yield f"  workload      {settings.workload or profile.workload}"
        yield f"  baseline      {asked_baseline(profile, settings)}"
        if settings.sweep:
            yield f"  sweep         {self._sweep()}"
        yield f"  remote code   {'allowed by the profile' if target.trust_remote_code else 'not allowed'}"
        for line in CHECKS:
            yield f"  check         {line}"
        if settings.server:
            yield f"  server        attach to {settings.server}; it is never stopped"
        elif not settings.static:
            yield from self._servers(boots)
        problems = (
            *self.preflight.problems,
            *unreadable_files(drafter=self.preflight.drafter, target=self.preflight.target),
        )
        for culprit, problem in problems:
            yield f"  missing       [{culprit}] {problem}"
        yield f"  {'this plan cannot run here yet' if problems else 'everything needed is here'}"

    def _sweep(self) -> str:
        own = self.profile.drafter.speculation
        others = other_settings(own, self.settings.sweep)
        asked = ", ".join(map(str, others)) or "no other setting"
        if self.settings.server:
            return f"{asked}: lower estimates of shorter chains, since an attached server is not booted again"
        shared = [s for s in sharing(own, (own, *others)) if s != own]
        boots = len(sweep_boots(self.spec, others))
        how = f", {', '.join(map(str, shared))} on one" if shared else ""
        return f"{asked}: {boots} more boot{'s' * (boots != 1)}, one at a time{how}"

    def _servers(self, boots: Sequence[PlannedBoot]) -> Iterator[str]:
        spec, found = self.spec, self.preflight
        price = Price(
            boots=tuple(Boot(boot.what, usual_s(boot.spec), boot.unsure) for boot in boots),
            rest_s=rest_of_last_run(self.settings.report, drafter=self.profile.name),
            gpus=self.profile.target.tp if spec.device == "cuda" else 0,
            copied=copied_bytes(found.drafter, blind=self.blind),
        )
        yield from price.lines(source=self.settings.report)
        gpus_mib = [gpu.memory_mib for gpu in self.place.gpus]
        weights = weights_of(found.target, found.drafter, tp=spec.tp, gpus_mib=gpus_mib)
        if weights is not None and spec.device == "cuda":
            yield from weights.lines()
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
