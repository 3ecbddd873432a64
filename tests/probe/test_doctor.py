"""``specprobe doctor``: says exactly what is missing, and nothing that is not."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_specprobe.cli import main
from pytest_specprobe.probe.doctor import Machine, examine, look, runs
from pytest_specprobe.server.gpu.holders import Holder
from pytest_specprobe.server.gpu.nvidia_smi import Gpu

GPU = Gpu("NVIDIA B200", 183_000, "580.1")
HOLDER = Holder(pid=7, command="train", user="eve", what="80 GiB of GPU 0")
WHOLE = Machine(
    python=Path("/env/bin/python"),
    sglang="0.5.23",
    torch="2.9.0",
    plots="matplotlib 3.10",
    gpus=(GPU,),
    holders=(),
    memory_gib=64.0,
    cores=16,
    room_gib=100.0,
    cache=Path("/cache"),
    loopback=None,
    system="Linux",
)


def wrong(machine: Machine) -> set[str]:
    return {finding.id.removeprefix("machine.") for finding in examine(machine) if finding.status == "fail"}


def test_nothing_is_wrong_with_a_whole_machine() -> None:
    assert wrong(WHOLE) == set()
    assert runs(WHOLE) == {"cpu": True, "cuda": True}


@pytest.mark.parametrize(
    ("change", "said", "able"),
    [
        ({"sglang": None, "torch": None}, {"sglang"}, {"cpu": False, "cuda": False}),
        ({"python": None, "sglang": None, "torch": None}, {"python"}, {"cpu": False, "cuda": False}),
        ({"torch": None}, {"torch"}, {"cpu": False, "cuda": False}),
        ({"sglang": "0.5.24"}, {"cpu-engine"}, {"cpu": False, "cuda": True}),
        ({"sglang": "0.5.23+cpu"}, set(), {"cpu": True, "cuda": True}),
        ({"sglang": "0.5.9"}, {"sglang", "cpu-engine"}, {"cpu": False, "cuda": False}),
        ({"sglang": "unknown"}, {"sglang"}, {"cpu": False, "cuda": False}),
        ({"gpus": ()}, {"gpu"}, {"cpu": True, "cuda": False}),
        ({"holders": (HOLDER,)}, {"gpu-free"}, {"cpu": True, "cuda": True}),
        ({"memory_gib": 1.0}, {"memory"}, {"cpu": True, "cuda": True}),
        ({"room_gib": 0.5}, {"disk"}, {"cpu": True, "cuda": True}),
        ({"loopback": "Cannot assign requested address"}, {"loopback"}, {"cpu": False, "cuda": False}),
        ({"system": "Darwin"}, {"linux"}, {"cpu": False, "cuda": False}),
        ({"plots": None}, {"plots"}, {"cpu": True, "cuda": True}),
    ],
)  # fmt: skip
def test_one_fault_is_one_finding(change: dict[str, object], said: set[str], able: Mapping[str, bool]) -> None:
    machine = replace(WHOLE, **change)  # type: ignore[arg-type]
    assert wrong(machine) == said
    assert runs(machine) == able


def test_a_missing_sglang_names_the_interpreter_and_the_command() -> None:
    missing = next(f for f in examine(replace(WHOLE, sglang=None, torch=None)) if f.id == "machine.sglang")
    assert missing.fix == "/env/bin/python -m pip install 'sglang==0.5.23'"


def test_who_holds_a_gpu_is_named() -> None:
    held = replace(WHOLE, holders=(HOLDER,))
    finding = next(f for f in examine(held) if f.id == "machine.gpu-free")
    assert "pid 7 (eve) train" in finding.seen


def bare_python(folder: Path) -> Path:
    """An interpreter without site-packages: it holds neither SGLang nor torch."""
    python = folder / "python"
    python.write_text('#!/bin/sh\nexec python3 -S -E "$@"\n')
    python.chmod(0o755)
    return python


def test_a_bare_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_specprobe.server.gpu.nvidia_smi.gpus", lambda: ())
    assert main(["doctor", "--python", str(bare_python(tmp_path))]) == 1
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("MISSING")] == ["sglang"]
    assert f"next: {tmp_path}/python -m pip install 'sglang==0.5.23'" in shown
    assert "no server can be booted here" in shown


def test_an_interpreter_that_cannot_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--python", str(tmp_path / "nothing"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == {"cpu": False, "cuda": False}
    failed = [f["id"] for f in document["findings"] if f["status"] == "fail" and f["severity"] == "error"]
    assert failed == ["machine.python"]


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = tmp_path / "not" / "yet" / "there"
    machine = look(python=bare_python(tmp_path), cache=cache, gpus=(), holders=())
    assert machine.sglang is None
    assert machine.room_gib > 0
    assert not (tmp_path / "not").exists()
