"""All probes of one pytest session: one run per drafter, shared baselines, one report."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_specprobe.errors import ProbeImpossible, SpecprobeError
from pytest_specprobe.probe.context import ProbeContext, SessionContext
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.plan.named_profiles import named_profiles
from pytest_specprobe.probe.report_entry import comparisons, entry
from pytest_specprobe.probe.run import ProbeRun, State
from pytest_specprobe.profiles import Profile, load_profiles
from pytest_specprobe.report import file as report
from pytest_specprobe.report.build import as_model, decided
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.markdown import to_step_summary
from pytest_specprobe.report.store.past import Past, look_back, remember
from pytest_specprobe.secret import Variables
from pytest_specprobe.server.gpu.nvidia_smi import Gpu, gpus
from pytest_specprobe.settings import Settings

logger = logging.getLogger(__name__)


class ProbeSession:
    """The probes of the named drafters; ``say`` shows a line to the person who waits."""

    def __init__(
        self,
        settings: Settings,
        *,
        say: Callable[[str], None],
        server_args: Callable[[Profile], tuple[str, ...]],
    ) -> None:
        """Read the profiles.

        :raises ProfileError: if a profile file, a drafter's name, its workload or its target's flags are unusable, or
            what is to be written in the report folder would go through a link.
        """
        context = SessionContext.open(settings, server_args=server_args)
        profiles = load_profiles(settings.root, extra=settings.profiles)
        self.settings = settings
        self.clock = context.clock
        self.wanted: set[str] = set()
        self.problems: list[SpecprobeError] = []
        self._context = context
        self._profiles = named_profiles(profiles, settings)
        self._runs = {
            name: ProbeRun(ProbeContext(profile, PhaseLog(name, say=say, changed=self._changed), context))
            for name, profile in self._profiles.items()
        }
        self.report: Report | None = None  # set by ``finish``; None where it breaks its own schema
        self.report_path = ""  # set once it is written
        self._snapshot: Report | None = None
        self._gpus: tuple[Gpu, ...] | None = None

    def profile(self, name: str) -> Profile:
        """Return the profile of a named drafter."""
        return self._profiles[name]

    def workload_name(self, name: str) -> str:
        """Return what a drafter's prompt set is called in test ids: a file's name without its folder and ending."""
        return Path(self.settings.workload or self.profile(name).workload).name.removesuffix(".jsonl")

    def run(self, name: str) -> ProbeRun:
        """Return the probe of a named drafter."""
        return self._runs[name]

    def header(self) -> list[str]:
        """Return the header lines: cheap facts only, and always whether remote code is allowed."""
        lines = []
        for name, profile in self._profiles.items():
            remote = "  remote code allowed" if profile.target.trust_remote_code else ""
            lines.append(
                f"specprobe: {name} ({profile.drafter.source}) on {profile.target_name} ({profile.target.model}), "
                f"{profile.drafter.speculation} steps/topk/tokens{remote}"
            )
        return lines

    def finish(self) -> Mapping[str, DrafterReport]:
        """Decide, stop the servers, write the report; return the drafters' entries by name.

        What goes wrong on the way is told in ``problems``: the entries are known all the same.
        """
        for run in self._runs.values():
            with run.phases.phase("decide", "verdict and gate"):
                run.decision()
        try:
            self.close()
        except SpecprobeError as error:
            self.problems.append(error)
        states = self._states()
        written = self._remembered(self._compose(states), states)
        try:
            self.report_path = str(report.write(written, folder=self.settings.report))
        except OSError as error:
            unwritten = ProbeImpossible(
                f"the report cannot be written below {self.settings.report}: {error.strerror or error}",
                culprit="machine",
                fix="give the disk room and the folder write permission, or name another with --specprobe-report",
            )
            self.problems.append(unwritten)
        try:
            self.report = report_of(written.document())
        except ValueError as error:
            broken = ProbeImpossible(
                f"the report breaks its own schema: {error}",
                culprit="harness",
                fix="report this as a bug of pytest-specprobe, with report.json, which holds what was measured",
            )
            self.problems.append(broken)
        else:
            to_step_summary(self.report, environ=Variables(os.environ))
        return {item.name: item for item in written.drafters}

    def past(self, name: str) -> Past:
        """Hold what was measured of a drafter so far against the earlier runs of its key; nothing is kept yet."""
        report = self._compose(self._states())
        entry = next(item for item in report.drafters if item.name == name)
        return look_back(
            report, entry, folder=self.settings.report, limit=self._limit(name), across=self.settings.across
        )

    def _remembered(self, report: Report, states: Mapping[ProbeRun, State]) -> Report:
        """Return the report with each drafter held against its past; a run that is to be a reference is kept."""
        entries = []
        for item, (run, state) in zip(report.drafters, states.items(), strict=True):
            past = remember(
                report,
                item,
                state.decision,
                folder=self.settings.report,
                limit=self._limit(run.profile.name),
                across=self.settings.across,
                environ=Variables(os.environ),
            )
            entries.append(decided(item, past.decision, history=past.history))
        return report.model_copy(update={"drafters": tuple(entries)})

    def _limit(self, name: str) -> float:
        return self._profiles[name].drafter.gate.max_regression

    def close(self) -> None:
        """Stop every server of this session; safe to call twice.

        :raises ServerError: if a process of one would not end; the others were stopped all the same.
        """
        self._context.close(run.close for run in self._runs.values())

    def machine_info(self) -> dict[str, Any]:
        """Return what a stored benchmark says beside pytest-benchmark's own: GPUs, driver, SGLang and torch."""
        found = gpus()
        infos = {name: run.servers.proofs.info for name, run in self._runs.items()}
        return {
            "gpus": [f"{gpu.name}, {gpu.memory_mib} MiB" for gpu in found],
            "gpu_driver": found[0].driver if found else None,
            "sglang": {name: info.version for name, info in infos.items() if info is not None},
            "torch": {name: version for name, run in self._runs.items() if (version := run.servers.torch())},
        }

    def _states(self) -> dict[ProbeRun, State]:
        return {run: run.state(narrowed=name not in self.wanted) for name, run in self._runs.items()}

    def _compose(self, states: Mapping[ProbeRun, State]) -> Report:
        if self._gpus is None:
            self._gpus = gpus()
        return report.compose(
            (entry(run, state) for run, state in states.items()),
            comparisons(states),
            gpus=[gpu.name for gpu in self._gpus],
            gpu_driver=self._gpus[0].driver if self._gpus else None,
        )

    def _changed(self, ended: bool) -> None:  # noqa: FBT001 - a callback has no keywords
        """Keep the report on disk current, so that a killed run leaves what it knew.

        Where a phase begins nothing else is known than where the last one ended.
        """
        if ended or self._snapshot is None:
            self._snapshot = self._compose(self._states())
        else:
            entries = tuple(
                as_model(DrafterReport, item, phases=self._runs[item.name].phases.phases)
                for item in self._snapshot.drafters
            )
            self._snapshot = self._snapshot.model_copy(update={"drafters": entries})
        try:
            report.write(self._snapshot, folder=self.settings.report)
        except OSError as error:
            # the final write raises; losing a snapshot must not end a measurement
            logger.warning("report snapshot not written: %s", error)
