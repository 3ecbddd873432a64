"""Where a probe's speed without speculation comes from: a server booted, shared or attached to, or a known number."""

from collections.abc import Callable
from dataclasses import dataclass

from pytest_specprobe.measure.throughput import KnownBaseline, Throughput, declared
from pytest_specprobe.measure.workloads import Workload
from pytest_specprobe.probe.boots import BaselinePool, Booter
from pytest_specprobe.probe.files import ProbeFiles
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.stored import Question, StoredBaselines
from pytest_specprobe.profiles import Profile
from pytest_specprobe.server.boot import Server
from pytest_specprobe.settings import BOOTED, Settings


@dataclass(frozen=True, slots=True)
class Baseline:
    """The speed without speculation: a running server, a number known from elsewhere, or neither.

    ``apart``: a server that is only up while the drafter's is not, and measured in turn with it.
    """

    server: Server | None
    known: KnownBaseline | None
    apart: bool = False


class Baselines:
    """Finds the baseline that option or profile ask for, and keeps one that was measured for later runs.

    ``pool`` is shared by the probes of a session; ``booter``, ``attach`` and ``workload`` are asked when needed.
    """

    def __init__(
        self,
        profile: Profile,
        files: ProbeFiles,
        *,
        settings: Settings,
        pool: BaselinePool,
        booter: Callable[[], Booter],
        attach: Callable[[str], Server],
        workload: Callable[[], Workload],
        phases: PhaseLog,
    ) -> None:
        self._profile = profile
        self._files = files
        self._settings = settings
        self._pool = pool
        self._booter = booter
        self._attach = attach
        self._workload = workload
        self._phases = phases
        self._stored = StoredBaselines(settings.report, phases)

    def find(self) -> Baseline:
        """Boot, attach to, or take as stored or declared what was asked for; a server is not yet proved."""
        asked = self._settings.baseline
        asked = self._profile.target.baseline if asked is None else asked
        if isinstance(asked, float):
            return Baseline(None, declared(asked))
        if asked == "none" or (self._settings.server is not None and asked in BOOTED):
            return Baseline(None, None)
        if asked not in BOOTED:
            return Baseline(self._attach(asked), None)
        booter, shared = self._booter(), self._pool.servers
        spec = booter.spec(None)
        if asked == "stored":
            known = self._stored.find(spec, self._question())
            if known is not None:
                return Baseline(None, known)
        if asked == "alternating" or not booter.fits(servers=2):
            self._phases.note("the drafter's server and its baseline are booted in turn, two more boots")
            return Baseline(None, None, apart=True)
        if spec not in shared:
            shared[spec] = booter.boot(None, what="baseline")
        return Baseline(shared[spec], None)

    def keep(self, throughput: Throughput) -> None:
        """Store the baseline that was measured in this pass, for later runs of the same question."""
        if self._settings.server is None:
            self._stored.keep(throughput, self._booter().spec(None), self._question())

    def _question(self) -> Question | None:
        """Return what a stored baseline must have been asked; None where a part of it is not known."""
        checked, place = self._files.checkpoint(), self._files.preflight().place
        if place is None or place.engine.version is None or checked.target_digest is None:
            return None
        return Question(
            target=checked.target_digest,
            engine=place.engine.version,
            gpus=tuple(gpu.name for gpu in place.gpus),
            workload=self._workload().digest,
            thinking=self._profile.target.thinking,
            max_new_tokens=self._profile.target.max_new_tokens,
            concurrency=self._settings.concurrency[0],
        )
