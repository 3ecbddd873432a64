"""Which servers a probe boots, and in which order: the one list that a plan prints and a probe follows.

Invariant: pure. Every decision about a boot is a function here; ``servers``, ``baselines`` and ``sweep`` ask the same
ones at run time, so a probe boots what its plan says, unless a boot fails or a setting of the sweep cannot win.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_specprobe.profiles import Profile, Speculation
from pytest_specprobe.server.gpu import share
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.settings import BOOTED, Baseline, Settings

DRAFTER, DRAFTER_AGAIN, BLIND, BASELINE = "drafter", "drafter again", "blind control", "baseline"
Source = Literal["none", "declared", "attached", "stored", "beside", "in turn"]
"""Where the baseline comes from. Beside, in turn: a server booted while the drafter's is up, or down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBoot:
    """One boot, as its phase is called.

    ``unsure``: it is spared if what is not known yet turns out well. ``stays``: it is a baseline that runs until the
    session ends, for every drafter of the same target and flags.
    """

    what: str
    spec: ServerSpec
    unsure: bool = False
    stays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """All that the boots of one probe hang on.

    ``spec`` is the drafter's server, ``attached`` tells that it is not ours to boot. ``stored`` tells whether a
    baseline of this question is stored; None where that cannot be known yet. ``levels`` is how many concurrencies
    are measured, ``sweep`` the settings that were asked for.
    """

    spec: ServerSpec
    attached: bool = False
    baseline: Baseline = "boot"
    stored: bool | None = False
    blind: bool = False
    levels: int = 1
    sweep: tuple[Speculation, ...] = ()


def planned_boots(wishes: Wishes, *, up: Collection[ServerSpec] = ()) -> tuple[PlannedBoot, ...]:
    """Return the boots of one probe, in order.

    :param up: the baselines of this session that run already; a baseline booted beside a drafter stays up.
    """
    if wishes.attached:
        return ()
    own, plain, baselines = wishes.spec, without_speculation(wishes.spec), set(up)
    again = PlannedBoot(what=DRAFTER_AGAIN, spec=own)
    boots = [PlannedBoot(what=DRAFTER, spec=own)]
    if wishes.blind:
        boots.append(PlannedBoot(what=BLIND, spec=own))
        boots += [again] * makes_room(own, baselines=len(baselines))
    source = baseline_source(
        wishes.baseline, attached=False, stored=bool(wishes.stored), beside=fits(plain, servers=2)
    )
    unsure = wishes.baseline == "stored" and wishes.stored is None
    base = PlannedBoot(what=BASELINE, spec=plain, unsure=unsure, stays=source == "beside")
    if source == "in turn":
        boots += [base, replace(again, unsure=unsure)] * wishes.levels
    elif source == "beside" and plain not in baselines:
        boots.append(base)
        baselines.add(plain)
    arms = sweep_boots(own, wishes.sweep)
    boots += arms
    boots += [again] * (bool(arms) and makes_room(own, baselines=len(baselines)))
    return tuple(boots)


def without_speculation(spec: ServerSpec) -> ServerSpec:
    """Return the baseline of a drafter's server: the same target with the same flags."""
    return replace(spec, drafter=None, speculation=None, candidates=())


def fits(spec: ServerSpec, *, servers: int) -> bool:
    """Tell whether so many servers with these flags fit beside each other, as far as the flags tell."""
    return spec.device == "cpu" or share.fits(spec.server_args, servers=servers)


def makes_room(spec: ServerSpec, *, baselines: int) -> bool:
    """Tell whether the drafter's server is down while one more runs beside the session's baselines."""
    return not fits(spec, servers=2 + baselines)


def baseline_source(asked: Baseline, *, attached: bool, stored: bool, beside: bool) -> Source:
    """Return where the speed without speculation comes from.

    :param asked: what option or profile ask for; a text that is no mode is the URL of a running server.
    :param attached: the drafter's server is not ours, so neither is a baseline booted.
    :param stored: whether one of this question is stored.
    :param beside: whether a baseline fits beside the drafter's server.
    """
    if isinstance(asked, float):
        return "declared"
    if asked == "none" or (attached and asked in BOOTED):
        return "none"
    if asked not in BOOTED:
        return "attached"
    if asked == "stored" and stored:
        return "stored"
    return "in turn" if asked == "alternating" or not beside else "beside"


def asked_baseline(profile: Profile, settings: Settings) -> Baseline:
    """Return the baseline that is asked for: by option, else by the target's profile."""
    return profile.target.baseline if settings.baseline is None else settings.baseline


def wants_blind(profile: Profile, settings: Settings, *, device: str) -> bool:
    """Tell whether a blind control is booted: by option, by profile, else wherever boots are cheap."""
    if settings.server is not None:
        return False
    wanted = profile.drafter.blind if settings.blind is None else settings.blind
    return device == "cpu" if wanted is None else wanted


def other_settings(own: Speculation, sweep: Sequence[Speculation]) -> tuple[Speculation, ...]:
    """Return the settings of a sweep beside the profile's own, each once."""
    return tuple(setting for setting in dict.fromkeys(sweep) if setting != own)


def sharing(own: Speculation, settings: Sequence[Speculation]) -> tuple[Speculation, ...]:
    """Return the chains that one boot serves: two besides the own one at least, or it would save none."""
    chains = tuple(s for s in settings if s.eagle_topk == 1)
    return chains if len([s for s in chains if s != own]) > 1 else ()


def shared_boot(chains: Sequence[Speculation]) -> tuple[Speculation, tuple[int, ...]]:
    """Return the setting that the boot of several chains starts with, and the step counts that it is pinned to.

    It is the widest: with CUDA graphs SGLang sizes buffers by the step count of the boot, and one for fewer steps
    died capturing the state for more.
    """
    return max(chains, key=lambda chain: chain.num_steps), tuple(chain.num_steps for chain in chains)


def arm_boot(setting: Speculation, *, candidates: Sequence[int] = ()) -> str:
    """Return what the boot of a sweep's setting is called; ``candidates`` are the step counts that share it."""
    steps = ", ".join(map(str, sorted(candidates)))
    return f"drafter, steps {steps} in one boot" if candidates else f"drafter {setting}"


def sweep_boots(own: ServerSpec, sweep: Sequence[Speculation]) -> tuple[PlannedBoot, ...]:
    """Return the boots of a sweep, in order: one for all chains that share it, one for each other setting."""
    if own.speculation is None:
        return ()
    others = other_settings(own.speculation, sweep)
    chains = sharing(own.speculation, (own.speculation, *others))
    boots = []
    if chains:
        first, steps = shared_boot(chains)
        spec = replace(own, speculation=first, candidates=steps)
        boots.append(PlannedBoot(what=arm_boot(first, candidates=steps), spec=spec))
    alone = [setting for setting in others if setting not in chains]
    boots += [PlannedBoot(what=arm_boot(s), spec=replace(own, speculation=s), unsure=True) for s in alone]
    return tuple(boots)
