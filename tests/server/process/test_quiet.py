"""A quiet boot says what it waits for: compilers below it, or GPUs that wait for each other."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_specprobe.errors import BootError
from pytest_specprobe.probe.servers.booter import narrator
from pytest_specprobe.server import boot_watch
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.boot_watch import BootProgress
from pytest_specprobe.server.process import ownership, quiet, supervisor
from pytest_specprobe.server.process.quiet import CUSTOM_FLAG, FUSION_FLAG, Compilation, compilation, wait_of
from pytest_specprobe.server.process.stall import StallWatch, effort
from pytest_specprobe.server.spec import ServerSpec

MakeSpec = Callable[..., ServerSpec]
# The last lines of a boot on two H200s that was quiet for 225 s: FlashInfer compiled its all-reduce fusion.
QUIET = (Path(__file__).parents[1] / "log" / "logs" / "quiet-tp2.log").read_text(encoding="utf-8")
JIT = "/root/.cache/flashinfer/0.6.15/90a/cached_ops"
NVCC = f"nvcc -c csrc/trtllm_allreduce_fusion.cu -o {JIT}/trtllm_comm/trtllm_allreduce_fusion.cuda.o"
OTHER = f"ninja -v -C {JIT} -f {JIT}/batch_decode/build.ninja"
Below = Callable[[dict[str, str]], list[list[str]]]


@pytest.fixture
def below(tmp_path: Path) -> Below:
    """Make programs of these names, with these command lines: each does nothing but live."""
    sleep = shutil.which("sleep")
    assert sleep

    def make(commands: dict[str, str]) -> list[list[str]]:
        for name in commands:
            shutil.copy(sleep, tmp_path / name)
        return [[str(tmp_path / name), words, "3600"] for name, words in commands.items()]

    return make


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for path in tmp_path.glob("pids*"):
        for pid in json.loads(path.read_text()):
            process = supervisor.read_process(pid)
            assert process is None or process.zombie, f"process {pid} outlived its test"
    assert ownership.servers() == ()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_watch, "_STALL_EVERY_S", 0.5)
    monkeypatch.setattr(boot_watch, "_TREE_EVERY_S", 0.25)


def fails(spec: ServerSpec, tmp_path: Path, **options: Any) -> tuple[BootError, list[BootProgress]]:
    seen: list[BootProgress] = []
    with pytest.raises(BootError) as caught:
        boot(spec, log_path=tmp_path / "server.log", progress=seen.append, **options)
    return caught.value, seen


def test_a_boot_that_compiles_is_not_stuck_and_names_the_flag_that_does_without(
    fake_spec: MakeSpec, tmp_path: Path, below: Below
) -> None:
    programs = below({"cc1plus": "cc1plus -quiet", "cicc": "cicc --arch compute_90a", "nvcc": NVCC})
    spec = fake_spec(tell=str(tmp_path / "pids"), log=QUIET, silent=True, below=programs)
    error, seen = fails(replace(spec, tp=2), tmp_path, timeout_s=4, stall_patience_s=1)
    assert "is stuck" not in error.what
    assert "was not ready after 4 s beside" in error.what
    assert "in phase kv-cache" in error.what
    assert "still compiling kernels: nvcc, cicc, cc1plus" in error.what
    assert FUSION_FLAG in error.fix
    assert "--specprobe-boot-timeout" in error.fix
    assert error.culprit == "machine"
    assert f"compiling kernels: nvcc (FlashInfer's all-reduce fusion; {FUSION_FLAG} does without it)" in {
        look.waits for look in seen
    }


def test_a_compiler_elsewhere_on_the_machine_is_not_the_boots(
    fake_spec: MakeSpec, tmp_path: Path, below: Below
) -> None:
    ((program, *words),) = below({"nvcc": NVCC})
    with subprocess.Popen(words, executable=program) as other:
        try:
            spec = fake_spec(tell=str(tmp_path / "pids"), silent=True)
            error, seen = fails(spec, tmp_path, timeout_s=60, stall_patience_s=2)
        finally:
            other.kill()
    assert "is stuck: no log line, no CPU time and no I/O" in error.what
    assert {look.waits for look in seen} == {""}


def test_gpus_that_wait_for_each_other_are_named_where_nothing_compiles(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "_QUIET_S", 0.5)
    spec = replace(fake_spec(tell=str(tmp_path / "pids"), log=QUIET, silent=True), tp=2)
    error, seen = fails(spec, tmp_path, timeout_s=60, stall_patience_s=2)
    assert "is stuck" in error.what
    assert error.culprit == "machine"
    for word in ("collective", CUSTOM_FLAG, "NCCL_DEBUG=INFO", "--specprobe-boot-timeout"):
        assert word in error.fix
    assert f"perhaps its GPUs wait for each other (NCCL): {CUSTOM_FLAG}, NCCL_DEBUG=INFO" in {
        look.waits for look in seen
    }
    spins = replace(fake_spec(tell=str(tmp_path / "pids2"), log=QUIET, spin=True), tp=2)
    late, _ = fails(spins, tmp_path, timeout_s=4)
    assert "was not ready after 4 s, in phase kv-cache" in late.what
    assert CUSTOM_FLAG in late.fix


class Quiet(NamedTuple):
    """A quiet boot, what is said of it meanwhile, and the next step ("" for both: nothing tells)."""

    compiles: tuple[str, ...]
    lines: str
    gpus: int
    quiet_s: float
    args: tuple[str, ...]
    said: str
    fix: str


@pytest.mark.parametrize(
    "case",
    [
        Quiet(("nvcc", "ninja"), QUIET, 2, 0.0, (), "compiling kernels: nvcc (Fl", FUSION_FLAG),
        Quiet(
            ("ninja",), QUIET, 2, 0.0, (FUSION_FLAG,), "compiling kernels: ninja", "raise --specprobe-boot-timeout"
        ),
        Quiet(("ptxas",), "", 1, 900.0, (), "compiling kernels: ptxas", "raise --specprobe-boot-timeout"),
        Quiet((), QUIET, 2, 60.0, (CUSTOM_FLAG,), "(NCCL): NCCL_DEBUG=INFO", "set NCCL_DEBUG=INFO"),
        Quiet((), "Capture target verify CUDA graph begin.", 8, 60.0, (), f"(NCCL): {CUSTOM_FLAG}", CUSTOM_FLAG),
        Quiet((), QUIET, 2, 59.0, (), "", ""),
        Quiet((), QUIET, 1, 900.0, (), "", ""),
        Quiet((), "Load weight begin. avail mem=1 GB", 8, 900.0, (), "", ""),
        Quiet((), QUIET + "Load weight begin\n" * 6, 8, 900.0, (), "", ""),
    ],
)
def test_what_a_quiet_boot_waits_for(case: Quiet) -> None:
    wait = wait_of(
        Compilation(case.compiles),
        lines=case.lines.splitlines(),
        gpus=case.gpus,
        quiet_s=case.quiet_s,
        server_args=case.args,
    )
    assert (wait is None) is (case.said == "")
    if wait is not None:
        assert case.said in wait.said
        assert case.fix in wait.fix
        assert not any(flag in wait.fix for flag in case.args)


def test_the_command_lines_say_which_module_compiles(tmp_path: Path, below: Below) -> None:
    started = []
    try:
        for program, *words in below({"nvcc": NVCC, "ninja": OTHER, "python3": f"{sys.executable} -m nvcc"}):
            started.append(subprocess.Popen(words, executable=program))
        both = compilation(child.pid for child in started)
        assert both == Compilation(("nvcc", "ninja"), frozenset({"trtllm_comm", "batch_decode"}), fusion=True)
        other = compilation([started[1].pid, 1 << 30])
        assert other == Compilation(("ninja",), frozenset({"batch_decode"}))
        assert FUSION_FLAG not in _fix(other), "the log's last lines do not overrule a command line"
    finally:
        for child in started:
            child.kill()
            child.wait()
    assert not compilation(child.pid for child in started).running


def _fix(compiles: Compilation) -> str:
    wait = wait_of(compiles, lines=QUIET.splitlines(), gpus=2, quiet_s=0.0, server_args=())
    assert wait is not None
    return wait.fix


def test_the_stall_clock_does_not_run_while_something_compiles() -> None:
    watch = StallWatch(1, patience_s=10, look=lambda _: (0.0, 0))
    assert not watch.stalled(now_s=0, quiet_s=0)
    assert not watch.stalled(now_s=10, quiet_s=10, compiling=True)
    assert not watch.stalled(now_s=400, quiet_s=400, compiling=True)
    assert not watch.stalled(now_s=409, quiet_s=409)
    assert watch.stalled(now_s=410, quiet_s=410)


def test_the_time_of_a_process_that_has_ended_stays_counted() -> None:
    burn = "import time; [0 for _ in iter(lambda: time.process_time() > 0.5, True)]"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('ended'); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ended\n"
        cpu_s, _ = effort(process.pid)
        process.communicate("\n")
    assert cpu_s > 0.5


def test_the_live_line_says_what_is_waited_for_at_once_and_then_every_ten_seconds() -> None:
    said: list[str] = []
    tell = narrator("drafter", said.append)

    def look(elapsed_s: float, waits: str) -> BootProgress:
        return BootProgress(phase="kv-cache", elapsed_s=elapsed_s, quiet_s=elapsed_s, line="", waits=waits)

    for at in range(16):
        tell(look(float(at), "compiling kernels: nvcc" if at >= 3 and at % 2 else ""))
    assert said == [
        "drafter: kv-cache",
        "drafter: kv-cache, compiling kernels: nvcc",
        "drafter: kv-cache, compiling kernels: nvcc, log quiet for 13 s",
    ]
