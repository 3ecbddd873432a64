"""Where a probe's speed without speculation comes from: a server booted, shared or attached to, or a known number."""

from collections.abc import Callable
from dataclasses import dataclass

from pytest_specprobe.measure.throughput import KnownBaseline, Throughput, declared
from pytest_specprobe.measure.workloads import Workload
from pytest_specprobe.probe.context import ProbeContext
from pytest_specprobe.probe.files import ProbeFiles
from pytest_specprobe.probe.plan.boots import BASELINE, asked_baseline, baseline_source, fits
from pytest_specprobe.probe.servers.booter import Booter
from pytest_specprobe.probe.servers.stored_baselines import Question, StoredBaselines, question_of
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.settings import BOOTED


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

    ``booter``, ``attach`` and ``workload`` are asked when needed.
    """

    def __init__(
        self,
        context: ProbeContext,
        files: ProbeFiles,
        *,
        booter: Callable[[], Booter],
        attach: Callable[[str], Server],
        workload: Callable[[], Workload],
    ) -> None:
        self._profile = context.profile
        self._settings = context.settings
        self._phases = context.phases
        self._pool = context.session.baselines
        self._files = files
        self._booter = booter
        self._attach = attach
        self._workload = workload
        self._stored = StoredBaselines(context.settings.report, context.phases)

    def find(self) -> Baseline:
        """Boot, attach to, or take as stored or declared what was asked for; a server is not yet proved."""
        asked = asked_baseline(self._profile, self._settings)
        attached = self._settings.server is not None
        spec = self._booter().spec(None) if asked in BOOTED and not attached else None
        known = self._stored.find(spec, self._question()) if asked == "stored" and spec is not None else None
        source = baseline_source(
            asked,
            attached=attached,
            stored=known is not None,
            beside=spec is not None and fits(spec, servers=2),
        )
        if source == "in turn":
            self._phases.note("the drafter's server and its baseline are booted in turn, two more boots")
            return Baseline(None, None, apart=True)
        if source == "beside" and spec is not None:
            return Baseline(self._shared(spec), None)
        if source == "attached":
            return Baseline(self._attach(str(asked)), None)
        return Baseline(None, declared(asked) if isinstance(asked, float) else known)

    def _shared(self, spec: ServerSpec) -> Server:
        """Return the baseline server of the session's drafters of this target and flags."""
        servers = self._pool.servers
        if spec not in servers:
            servers[spec] = self._booter().boot(None, what=BASELINE)
        return servers[spec]

    def keep(self, throughput: Throughput) -> None:
        """Store the baseline that was measured in this pass, for later runs of the same question."""
        if self._settings.server is None:
            self._stored.keep(throughput, self._booter().spec(None), self._question())

    def _question(self) -> Question | None:
        checked, place = self._files.checkpoint(), self._files.preflight().place
        return question_of(
            self._profile,
            self._settings,
            place=place,
            target=checked.target_digest,
            workload=self._workload().digest,
        )
