"""What is served is what was checked: the staged directory is inspected once more before a boot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.errors import CheckFailed
from pytest_specprobe.probe import files
from pytest_specprobe.probe.context import ProbeContext, SessionContext
from pytest_specprobe.probe.files import ProbeFiles
from pytest_specprobe.probe.once import Once
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.profiles import load_profiles
from pytest_specprobe.settings import Settings
from pytest_specprobe.staging import stage
from tests.support import checkpoint_builder as build


@pytest.fixture
def probe(tmp_path: Path) -> ProbeFiles:
    build.llama().save(tmp_path / "drafter")
    build.target().save(tmp_path / "target")
    profile = load_profiles(tmp_path, extra=None).get("dense_mini")
    profile = replace(
        profile,
        target=profile.target.model_copy(update={"model": str(tmp_path / "target")}),
        drafter=profile.drafter.model_copy(update={"source": str(tmp_path / "drafter")}),
    )
    settings = Settings(
        drafters=("dense_mini",), root=tmp_path, profiles=None, report=tmp_path / "report", server=None,
        baseline=None, blind=None, workload=None, concurrency=(), temperature=None, sweep=(), static=True,
        device="cpu", python=None, boot_timeout_s=None,
    )  # fmt: skip
    log = PhaseLog("dense_mini", say=lambda _: None)
    session = replace(SessionContext.open(settings), cache=tmp_path / "cache")
    return ProbeFiles(ProbeContext(profile, log, session), Once())


def test_a_staged_drafter_and_its_blind_control_pass_the_checks_of_their_source(probe: ProbeFiles) -> None:
    assert probe.staged().path.is_dir()
    assert probe.staged_blind().path.is_dir()


def _no_weights(path: Path) -> None:
    (path / "model.safetensors").unlink()


def _cut_weights(path: Path) -> None:
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").unlink()
    (path / "model.safetensors").write_bytes(whole[:-8])


def _another_config(path: Path) -> None:
    text = (path / "config.json").read_text()
    (path / "config.json").unlink()
    (path / "config.json").write_text(text.replace('"hidden_size": ', '"hidden_size": 1'))


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (_no_weights, "file.missing"),
        (_cut_weights, "is cut short"),
        (_another_config, "target.hidden"),
    ],
)
@pytest.mark.parametrize("blind", [False, True])
def test_a_staged_directory_that_is_not_what_was_checked_is_never_served(
    probe: ProbeFiles, monkeypatch: pytest.MonkeyPatch, spoil: Any, names: str, *, blind: bool
) -> None:
    make = stage

    def spoiled(*words: Any, **more: Any) -> Any:
        staged = make(*words, **more)
        spoil(staged.path)
        return staged

    monkeypatch.setattr(files, "stage", spoiled)
    with pytest.raises(CheckFailed, match="is not what was checked") as caught:
        probe.staged_blind() if blind else probe.staged()
    assert names in str(caught.value)
