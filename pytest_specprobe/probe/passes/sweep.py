"""The settings of ``--specprobe-sweep``, measured where each can be: one boot for all chains, one per other setting.

Invariant: three kinds of contenders take turns in every pass: the settings, the profile's own setting on its own
boot, and the baseline; no more than three servers are up. Where so many do not fit, what is missing in a pass is
compared with the probe's own pass, at another time, and every number that this touches is labelled. Times of a boot
that serves several settings count for nothing until the own setting is shown to be as fast there as on its own boot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_specprobe.decide.sweep import cannot_win
from pytest_specprobe.errors import BootError, CheckFailed, SpecprobeError
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.checks.busy_machine import CROWDED_SWEEP, CpuTime, check_load
from pytest_specprobe.measure.passes import Contender, ThroughputRuns, TurnRuns, alternate
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.sweep import Arm, How, Parity, Sweep, Trial, measure_arm, measure_parity
from pytest_specprobe.measure.throughput import BaselineSource
from pytest_specprobe.probe.phases import PhaseLog, narrator
from pytest_specprobe.probe.plan.boots import shared_boot, sharing
from pytest_specprobe.probe.servers.probe_servers import ProbeServers
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.pinned_steps import NotPinned, PinnedSteps

_OWN, _BASELINE = "own boot", "baseline"
_ATTACHED = "not run: a server that someone else runs is not booted with other settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What a sweep is about.

    ``settings`` are all of them, the profile's ``own`` first. ``runs`` is the probe's throughput pass, ``lengths``
    the tokens per request by prompt, ``dropped`` the prompts that count in nothing, ``streams`` how many requests are
    in flight.
    """

    own: Speculation
    settings: tuple[Speculation, ...]
    runs: ThroughputRuns
    lengths: Mapping[str, int]
    dropped: Mapping[str, str]
    streams: int = 1


class SweepRun:
    """One sweep. ``load`` tells after each pass how busy others kept the machine (CPU servers only)."""

    def __init__(self, plan: SweepPlan, servers: ProbeServers, phases: PhaseLog) -> None:
        self._plan = plan
        self._servers = servers
        self._phases = phases
        self._base = servers.baseline()
        self._arms: list[Arm] = []
        self._skipped: dict[Speculation, str] = {}
        self._parity: Parity | None = None
        self._fallback: str | None = None
        self._beside = True
        self.load: list[Finding] = []

    def run(self) -> Sweep:
        """Measure every setting that can be measured and may win.

        :raises MeasurementError: if a request fails.
        :raises BootError: if the drafter's own server had to make room and does not come back.
        """
        plan = self._plan
        others = plan.settings[1:]
        if not self._servers.server().owned:
            self._skipped = dict.fromkeys(others, _ATTACHED)
        else:
            with self._servers.room() as self._beside:
                chains = sharing(plan.own, plan.settings)
                if chains:
                    self._share(chains)
                for setting in others:
                    if setting not in self._measured():
                        self._alone(setting)
        if plan.own not in self._measured():
            # nothing took turns with it, so its own pass of the probe is what there is
            how: How = "own-boot" if self._servers.server().owned else "attached"
            self._add(plan.own, plan.runs.drafter, how=how, own=plan.runs.drafter, plain=plan.runs.baseline)
        return Sweep(
            own=plan.own,
            settings=plan.settings,
            arms=tuple(self._arms),
            skipped=self._skipped,
            parity=self._parity,
            fallback=self._fallback,
            crowded=self._crowded,
        )

    def _share(self, chains: tuple[Speculation, ...]) -> None:
        """Measure all chains on one boot; if it cannot be had, or does not hold its step count, say so and go on."""
        own = self._plan.own
        first, steps = shared_boot(chains)
        try:
            with self._servers.arm(first, candidates=steps) as server:
                pinned = PinnedSteps(server.client, steps=first.num_steps)
                contenders = {str(s): Contender(server.client, partial(_pin, pinned, s.num_steps)) for s in chains}
                turns = self._take_turns(server, contenders)
                pinned.verify()
        except (BootError, CheckFailed, NotPinned) as error:
            self._fallback = _first_line(error)
            self._phases.note(f"one boot per setting, since chains cannot share one: {self._fallback}")
            return
        if own in chains:
            shared = turns[str(own)].generations
            alone = turns[_OWN].generations if self._beside else _as_in(shared, self._plan.runs.drafter)
            self._parity = measure_parity(own, shared, alone, dropped=self._plan.dropped)
        if not self._as_fast:  # what this boot's times are worth is not known, so the own setting's are from its own
            chains = tuple(chain for chain in chains if chain != own)
        self._keep(turns, chains, how="one-boot")

    def _alone(self, setting: Speculation) -> None:
        """Measure one setting on a boot of its own, unless it cannot win; a boot that fails is said, not fatal."""
        why = cannot_win(setting, self._trusted())
        try:
            if why is None:
                with self._servers.arm(setting) as server:
                    turns = self._take_turns(server, {str(setting): Contender(server.client)})
                self._keep(turns, (setting,), how="own-boot")
        except (BootError, CheckFailed) as error:
            why = f"not run: {_first_line(error)}"
        if why is not None:
            self._skipped[setting] = why
            self._phases.note(f"{setting} {why}")

    def _take_turns(self, server: Server, contenders: Mapping[str, Contender]) -> dict[str, TurnRuns]:
        own, base = self._servers.server() if self._beside else None, self._base.server
        every = dict(contenders)
        every |= {name: Contender(s.client) for name, s in ((_OWN, own), (_BASELINE, base)) if s is not None}
        pids = [s.pid for s in (server, own, base) if s is not None and s.pid is not None]
        turns = f", in turns with {self._plan.own} on its own boot" if own is not None else ""
        with self._phases.phase("probe", f"sweep of {', '.join(contenders)}{turns}") as say:
            before = CpuTime.now(pids)
            taken = alternate(
                every,
                self._servers.prompts(),
                new_tokens=self._plan.lengths,
                # a turn of several streams is all prompts, so that only a second round turns the order over
                repeats=1 if self._plan.streams == 1 else 2,
                concurrency=self._plan.streams,
                progress=narrator("sweep", say),
            )
            if self._servers.device == "cpu":
                self.load.append(check_load((before, CpuTime.now(pids)), part="sweep"))
        return taken

    def _keep(self, turns: Mapping[str, TurnRuns], settings: tuple[Speculation, ...], *, how: How) -> None:
        """Turn one pass into arms, each held against the own setting on the same boot if it was there."""
        own, runs = self._plan.own, self._plan.runs
        plain = turns[_BASELINE].generations if _BASELINE in turns else runs.baseline
        name = str(own) if own in settings else _OWN
        reference = turns[name].generations if name in turns else runs.drafter
        apart = name not in turns or (_BASELINE not in turns and bool(plain))
        if own not in self._measured() and own not in settings and name in turns:
            self._add(own, reference, how="own-boot", own=reference, plain=plain, apart=apart)
        for setting in settings:
            self._add(setting, turns[str(setting)].generations, how=how, own=reference, plain=plain, apart=apart)

    def _add(
        self,
        setting: Speculation,
        requests: tuple[Generation, ...],
        *,
        how: How,
        own: tuple[Generation, ...],
        plain: tuple[Generation, ...],
        apart: bool = False,
    ) -> None:
        base, known = self._base.server, self._base.known
        booted: BaselineSource = "boot" if base is not None and base.owned else "attached"
        self._arms.append(
            measure_arm(
                Trial(setting=setting, how=how, requests=requests, own=own, baseline=plain or known, apart=apart),
                own=self._plan.own,
                settings=len(self._plan.settings),
                concurrency=self._plan.streams,
                baseline_source="alternating" if self._base.apart else booted,
                dropped=self._plan.dropped,
            )
        )

    @property
    def _crowded(self) -> bool:
        return any(check.status == "fail" and check.id == CROWDED_SWEEP for check in self.load)

    def _trusted(self) -> list[Arm]:
        """Return the arms whose speed may rule out another: a shared boot's only once it is shown to be as fast."""
        if self._crowded:
            return []
        return [arm for arm in self._arms if not arm.apart and (self._as_fast or arm.how != "one-boot")]

    @property
    def _as_fast(self) -> bool:
        """Tell whether the shared boot is shown to be as fast as a boot of its own."""
        return self._parity is not None and self._parity.shown

    def _measured(self) -> set[Speculation]:
        return {arm.setting for arm in self._arms}


def _pin(pinned: PinnedSteps, steps: int) -> bool:
    pinned.pin(steps)
    return False  # every setting was warmed up before the first turn


def _as_in(requests: Sequence[Generation], others: Sequence[Generation]) -> tuple[Generation, ...]:
    """Return for each request the first of the others with its prompt."""
    first = {other.prompt_id: other for other in reversed(others)}
    return tuple(first[request.prompt_id] for request in requests)


def _first_line(error: SpecprobeError) -> str:
    return error.what.partition("\n")[0]
