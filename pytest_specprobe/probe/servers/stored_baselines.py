"""Baselines of earlier runs, found and kept beside the report."""

import contextlib
import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import Timeout

from pytest_specprobe.checkpoint.files.digest import text_digest
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.measure.throughput import KnownBaseline, Throughput
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.plan.preflight import Place
from pytest_specprobe.profiles import Profile
from pytest_specprobe.reading import Unreadable
from pytest_specprobe.report.file import machine
from pytest_specprobe.report.render.text import interval, seconds
from pytest_specprobe.report.store import baselines
from pytest_specprobe.report.store.key import Key, hardware
from pytest_specprobe.secret import Variables
from pytest_specprobe.server.spec import ServerSpec, values_of
from pytest_specprobe.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a baseline answers, beside its server: digests of target and prompts, software, machine, streams.

    ``engine`` is SGLang's version, ``torch`` PyTorch's, ``driver`` that of the GPUs (None without one);
    ``thinking`` and ``max_new_tokens`` as the target's profile says.
    """

    target: str
    engine: str
    torch: str
    gpus: tuple[str, ...]
    driver: str | None
    workload: str
    thinking: bool | None
    max_new_tokens: int
    concurrency: int

    def key(self, spec: ServerSpec) -> Key:
        """Return the key of this question on this server.

        :raises CheckpointError: if a file of the target's tokenizer cannot be read.
        """
        told = values_of(spec.server_args, "--chat-template", "--tokenizer-path")
        here = machine(gpus=self.gpus, gpu_driver=self.driver)
        return baselines.baseline_key(
            spec,
            target=self.target,
            engine=self.engine,
            torch=self.torch,
            hardware=hardware(here, device=spec.device),
            host=hardware(here, device="cpu"),
            driver=self.driver,
            workload=self.workload,
            thinking=self.thinking,
            max_new_tokens=self.max_new_tokens,
            concurrency=self.concurrency,
            rendering=text_digest(Path(spec.model), others=[Path(place) for place in told]),
            environ=Variables(os.environ),
        )


def question_of(
    profile: Profile, settings: Settings, *, place: Place | None, target: str | None, workload: str
) -> Question | None:
    """Return what a stored baseline must have been asked; None where a part of it is not known.

    :param place: where the servers run; None if that is not known.
    :param target: the target's digest; None if its files cannot be read.
    :param workload: the digest of the prompt set.
    """
    if place is None or place.engine.version is None or place.engine.torch is None or target is None:
        return None
    return Question(
        target=target,
        engine=place.engine.version,
        torch=place.engine.torch,
        gpus=tuple(gpu.name for gpu in place.gpus),
        driver=place.gpus[0].driver if place.gpus else None,
        workload=workload,
        thinking=profile.target.thinking,
        max_new_tokens=profile.target.max_new_tokens,
        concurrency=settings.concurrency[0],
    )


def stored_baseline(folder: Path, spec: ServerSpec, question: Question | None) -> KnownBaseline | None:
    """Return the newest baseline of this question in a report folder; None if there is none that can be read."""
    if question is None:
        return None
    try:
        stored = baselines.find(question.key(spec), path=folder / baselines.NAME)
    except (Unreadable, CheckpointError) as error:
        logger.warning("stored baselines not read: %s", error)
        return None
    return None if stored is None else stored.known(now=datetime.now(UTC))


class StoredBaselines:
    """The file ``baselines.jsonl`` of one report folder. A file that cannot be used costs a boot, not the probe."""

    def __init__(self, folder: Path, phases: PhaseLog) -> None:
        self._folder = folder
        self._phases = phases

    def find(self, spec: ServerSpec, question: Question | None) -> KnownBaseline | None:
        """Return the newest stored baseline of this question, and say how old it is; None if there is none."""
        known = stored_baseline(self._folder, spec, question)
        if known is not None:
            age, rate = seconds(known.age_s or 0.0), interval(known.tok_per_s)
            self._phases.note(f"stored baseline, {age} old: {rate} tok/s")
        else:
            self._phases.note("no stored baseline of this target, flags, machine and workload: booting one")
            other = None if question is None else self._mismatch(question, spec)
            if other is not None:
                self._phases.note(f"stored baselines: {other}")
        return known

    def _mismatch(self, question: Question, spec: ServerSpec) -> str | None:
        """Say in what the nearest stored one differs; nothing where that cannot be read, which has been said."""
        with contextlib.suppress(Unreadable, CheckpointError):
            return baselines.mismatch(question.key(spec), path=self._folder / baselines.NAME)
        return None

    def keep(self, throughput: Throughput, spec: ServerSpec, question: Question | None) -> None:
        """Store the baseline that a pass measured, if it measured one on a server of ours."""
        if question is None:
            return
        try:
            baseline = baselines.measured(throughput, key=question.key(spec), now=datetime.now(UTC))
            if baseline is not None:
                baselines.store(baseline, path=self._folder / baselines.NAME)
        except (OSError, Timeout, CheckpointError) as error:
            logger.warning("baseline not stored: %s", error)
