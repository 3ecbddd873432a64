"""A stored baseline spares a boot only where it answers the question; a bad file costs a boot, not the probe."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.plan.device import Engine
from pytest_specprobe.probe.plan.preflight import Place
from pytest_specprobe.probe.servers.stored_baselines import Question, StoredBaselines, question_of
from pytest_specprobe.profiles import load_profiles
from pytest_specprobe.report.store.baselines import NAME
from pytest_specprobe.server.gpu.nvidia_smi import Gpu
from pytest_specprobe.settings import Settings
from tests.support.baseline_question import QUESTION
from tests.support.stored_baselines import SPEC, SPEED

GPU = Gpu("NVIDIA H200", 143771, "570.1")


def test_boots_once_then_reads_and_says_how_old_it_is(tmp_path: Path) -> None:
    said: list[str] = []
    stored = StoredBaselines(tmp_path, PhaseLog("aq", say=said.append))
    assert stored.find(SPEC, QUESTION) is None
    assert "booting one" in said[-1]
    stored.keep(SPEED, SPEC, QUESTION)
    known = stored.find(SPEC, QUESTION)
    assert known is not None
    assert SPEED.baseline_tok_per_s is not None
    assert known.tok_per_s.value == SPEED.baseline_tok_per_s.value
    assert known.age_s is not None
    assert 0 <= known.age_s < 60
    assert "stored baseline" in said[-1]
    assert " s old" in said[-1]


@pytest.mark.parametrize("change", [{"thinking": True}, {"thinking": False}, {"max_new_tokens": 4096}])
def test_another_way_to_ask_is_another_question(tmp_path: Path, change: dict[str, Any]) -> None:
    stored = StoredBaselines(tmp_path, PhaseLog("aq", say=lambda _: None))
    stored.keep(SPEED, SPEC, QUESTION)
    assert stored.find(SPEC, replace(QUESTION, **change)) is None
    assert stored.find(SPEC, QUESTION) is not None


def _asked(*, gpu: Gpu = GPU, torch: str | None = "2.11.0") -> Question | None:
    profile = load_profiles(Path("nowhere")).get("aq_k2_mini")
    place = Place("cuda", Engine(Path("python"), "0.5.17", torch), (gpu,))
    settings = cast("Settings", SimpleNamespace(concurrency=(1,)))  # all that is read of it
    return question_of(profile, settings, place=place, target="t" * 64, workload="w" * 64)


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (_asked(gpu=replace(GPU, driver="580.2")), "driver (570.1; now 580.2)"),
        (_asked(torch="2.12.0"), "torch (2.11.0; now 2.12.0)"),
    ],
)
def test_another_driver_or_torch_is_another_question_and_said(tmp_path: Path, other: Question, part: str) -> None:
    said: list[str] = []
    spec, stored = replace(SPEC, device="cuda"), StoredBaselines(tmp_path, PhaseLog("aq", say=said.append))
    stored.keep(SPEED, spec, _asked())
    assert stored.find(spec, _asked()) is not None
    assert stored.find(spec, other) is None
    assert said[-1].endswith(f"differs in {part}")


def test_another_host_under_the_same_gpus_is_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    question, spec = _asked(), replace(SPEC, device="cuda")
    assert question is not None
    here = question.key(spec)
    monkeypatch.setattr("pytest_specprobe.report.file._cpu", lambda: "another CPU")
    assert here.differences(question.key(spec)).keys() == {"host"}


def test_without_a_known_torch_nothing_is_asked() -> None:
    assert _asked(torch=None) is None


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", "tokenization_kimi.py", "tiktoken.model"])
def test_another_tokenizer_or_template_is_another_question(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"weights have a digest of their own")
    spec = replace(SPEC, model=str(target))
    stored = StoredBaselines(tmp_path, PhaseLog("aq", say=lambda _: None))
    for text in (None, "one", "two"):
        if text:
            (target / name).write_text(text)
        assert stored.find(spec, QUESTION) is None
        stored.keep(SPEED, spec, QUESTION)
        assert stored.find(spec, QUESTION) is not None
    (target / "README.md").write_text("not read by any server")
    assert stored.find(spec, QUESTION) is not None


def test_a_template_from_elsewhere_is_read_too(tmp_path: Path) -> None:
    spec = replace(SPEC, server_args=("--chat-template", str(tmp_path / "mine.jinja")))
    keys = []
    for text in ("one", "two"):
        (tmp_path / "mine.jinja").write_text(text)
        keys.append(QUESTION.key(spec))
    assert keys[0] != keys[1]
    assert keys[0].differences(keys[1]).keys() == {"rendering"}


def test_the_environment_of_the_server_is_part_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for threads in ("1", "16"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        keys.append(QUESTION.key(SPEC))
    assert keys[0].differences(keys[1]) == {"env.OMP_NUM_THREADS": ("1", "16")}


def test_a_question_that_is_not_wholly_known_has_no_answer(tmp_path: Path) -> None:
    stored = StoredBaselines(tmp_path, PhaseLog("aq", say=lambda _: None))
    stored.keep(SPEED, SPEC, None)
    assert not (tmp_path / NAME).exists()
    assert stored.find(SPEC, None) is None


def test_a_tokenizer_that_cannot_be_read_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    spec, stored = replace(SPEC, model=str(tmp_path)), StoredBaselines(tmp_path, PhaseLog("aq", say=lambda _: None))
    stored.keep(SPEED, spec, QUESTION)
    assert stored.find(spec, QUESTION) is None
    assert not (tmp_path / NAME).exists()
    assert caplog.text.count("tokenizer.json") == 2


def test_a_file_that_cannot_be_used_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).mkdir()
    stored = StoredBaselines(tmp_path, PhaseLog("aq", say=lambda _: None))
    stored.keep(SPEED, SPEC, QUESTION)
    assert stored.find(SPEC, QUESTION) is None
    assert "baseline not stored" in caplog.text
    assert "stored baselines not read" in caplog.text
