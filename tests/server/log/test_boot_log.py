"""What a log says. The real logs beside this file's data are the corpus; the rest are the lines SGLang writes."""

import re
from pathlib import Path

import pytest

from pytest_specprobe.server.log.boot_log import Phase, advance, faults, tail
from pytest_specprobe.server.log.diagnosis import diagnose, root_exception

HEALTHY = """\
[2026-11-30 00:57:44] server_args=ServerArgs(model_path='m')
[2026-11-30 00:58:12] Init torch distributed begin.
[2026-11-30 00:58:14] Ignore import error when loading sglang.srt.models.inkling: No module named 'helion'
[2026-11-30 00:58:16] Load weight begin. avail mem=139.09 GB
Multi-thread loading shards:   0% Completed | 0/1\rMulti-thread loading shards: 100% Completed | 1/1
[2026-11-30 00:58:16] Load weight end. elapsed=0.23 s, type=LlamaForCausalLM
[2026-11-30 00:58:18] SPECULATIVE_MOE_RUNNER_BACKEND is not initialized, using auto backend
[2026-11-30 00:58:18] Load weight begin. avail mem=138.83 GB
[2026-11-30 00:58:20] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1863472
[2026-11-30 00:58:20] Capture target verify CUDA graph begin. backend=full
[2026-11-30 00:58:38] INFO:     Uvicorn running on http://127.0.0.1:31003 (Press CTRL+C to quit)
[2026-11-30 00:58:43] The server is fired up and ready to roll!
"""
CRASH = """\
[2026-11-30 00:40:20] Capture draft decode CUDA graph begin. backend=full
[2026-11-30 00:40:26] Scheduler hit an exception: Traceback (most recent call last):
  File "scheduler.py", line 4931, in run_scheduler_process
    scheduler = Scheduler(
                ^^^^^^^^^^
  File "dsa_backend.py", line 90, in <module>
    import deep_gemm
{exception}

[2026-11-30 00:40:26] Received sigquit from a child process. It usually means the child failed.
[2026-11-30 00:40:26] kill_process_tree called: parent_pid=1470, include_parent=True, pid=1470
Traceback (most recent call last):
  File "engine.py", line 5, in wait
    raise RuntimeError("Rank 0 scheduler died during initialization (exit code: -9).")
RuntimeError: Rank 0 scheduler died during initialization (exit code: -9).
"""


def phases(text: str) -> list[Phase]:
    seen: list[Phase] = ["launch"]
    for line in re.split(r"[\r\n]+", text):
        reached = advance(seen[-1], line)
        if reached != seen[-1]:
            seen.append(reached)
    return seen


def test_phases_of_a_healthy_boot_in_order() -> None:
    expected = ["launch", "init", "weights", "draft-weights", "kv-cache", "graphs", "warm-up", "ready"]
    assert phases(HEALTHY) == expected


def test_other_ranks_and_harmless_lines_move_nothing() -> None:
    assert advance("init", "[2026-11-30 00:58:16 TP3] Load weight begin. avail mem=1 GB") == "init"
    assert advance("init", "[2026-11-30 00:58:16 TP0] Load weight begin. avail mem=1 GB") == "weights"
    assert advance("init", "Ignore import error when loading x: The server is fired up and ready to roll") == "init"


def test_a_phase_never_goes_back() -> None:
    assert advance("ready", "Load weight begin") == "ready"


def test_a_healthy_log_has_no_faults_and_a_sick_one_names_its_lines() -> None:
    assert faults(HEALTHY) == ()
    sick = HEALTHY + CRASH.format(exception="ValueError: x") + "\x1b[31mERROR:    boom\x1b[0m\n"
    assert len(faults(sick)) == 3
    assert "hit an exception" in faults(sick)[0]


def test_the_tail_shows_what_a_reader_needs() -> None:
    text = "one\n\nIgnore import error when loading x\n  0%|\r 50%|\r100%| done\n\x1b[1;33mthree\x1b[0m\n"
    assert tail(text, 3) == "one\n100%| done\nthree"


@pytest.mark.parametrize(
    ("exception", "culprit", "says"),
    [
        ("ModuleNotFoundError: No module named 'deep_gemm'", "machine", "deep_gemm"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "launch-flags", "CUDA graphs"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "launch-flags", "memory"),
        ("RuntimeError: Cannot find any model weights with `/m/target`", "drafter-file", "no weights in /m/target"),
        (
            (
                "ValueError: Warning: Target model's context_length (262144) is greater than "
                "the derived context_length (131072). This may lead to"
            ),
            "drafter-config",
            "131072 tokens) is shorter than the target's (262144)",
        ),
        (
            (
                "ValueError: Warning: User-specified context_length (9000) is greater than "
                "the derived context_length (8192). This may"
            ),
            "launch-flags",
            "--context-length 9000",
        ),
        ("ValueError: Model architectures ['Foo3'] are not supported for now.", "engine", "Foo3"),
        (
            (
                "ValueError: The checkpoint you are trying to load has model type `kimi_k25` but "
                "Transformers does not recognize this architecture."
            ),
            "engine",
            "kimi_k25",
        ),
        ("AttributeError: 'X' object has no attribute 'set_eagle3_layers_to_capture'", "engine", "EAGLE-3"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1", "machine", "NCCL"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "machine", "no usable GPU"),
        ("ValueError: Cannot find the config file for fp8", "launch-flags", "quantisation"),
        ("OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 1)", "machine", "port"),
        ("OSError: [Errno 28] No space left on device", "machine", "disk is full"),
        (
            "safetensors.SafetensorError: Error while deserializing header: HeaderTooLarge",
            "drafter-file",
            "safetensors",
        ),
        ("ZeroDivisionError: division by zero", "engine", "ZeroDivisionError: division by zero"),
    ],
)
def test_each_known_failure_has_its_culprit(exception: str, culprit: str, says: str) -> None:
    found = diagnose(HEALTHY.replace("The server is fired up", "x") + CRASH.format(exception=exception))
    assert (found.culprit, says in found.what) == (culprit, True), found
    assert found.fix


LOGS = Path(__file__).with_name("logs")


@pytest.mark.parametrize(
    ("name", "phase", "culprit", "says"),
    [
        ("args", "launch", "launch-flags", "unrecognized arguments: --no-such-flag"),
        ("nomodel", "launch", "target", "no model at the place"),
        ("modeltype", "launch", "engine", "model type kimi_k99"),
        ("cuda", "init", "machine", "no usable GPU"),
        ("arch", "init", "engine", "does not know the model class FooForCausalLM"),
        ("quant", "weights", "launch-flags", "quantisation"),
        ("context", "draft-weights", "drafter-config", "(1024 tokens) is shorter than the target's (2048)"),
        ("lfs", "draft-weights", "drafter-file", "not readable safetensors"),
        ("lfs", "weights", "target", "not readable safetensors"),
        ("fcdim", "draft-weights", "drafter-file", "shape [64, 128] where config.json asks for [64, 192]"),
        ("d2t", "warm-up", "drafter-file", "outside its table"),
        ("kernel", "graphs", "engine", "does not compile for the shapes"),
        ("starved", "draft-weights", "launch-flags", "out of GPU memory while allocating the KV cache"),
    ],
)
def test_boots_of_real_sglang_that_failed(name: str, phase: Phase, culprit: str, says: str) -> None:
    """Logs of SGLang 0.5.23 on a CPU and (the last two) 0.5.17 on an H200; server arguments and paths cut."""
    text = (LOGS / f"{name}.log").read_text()
    found = diagnose(text, phase=phase, exit_code=1)
    assert (found.culprit, says in found.what) == (culprit, True), found
    reached = [p for p in phases(text) if p != "ready"][-1]
    assert name == "lfs" or reached == phase


def test_phases_of_a_real_boot_on_a_gpu() -> None:
    """SGLang 0.5.17 with EAGLE-3 and CUDA graphs on an H200, up to the line that says it is ready."""
    text = (LOGS / "healthy-cuda.log").read_text()
    assert phases(text) == ["launch", "init", "weights", "draft-weights", "kv-cache", "graphs", "warm-up", "ready"]
    assert faults(text) == ()


def test_the_port_alone_is_worth_another_try() -> None:
    taken = "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 1): address already in use"
    assert diagnose(taken).port_taken
    assert not diagnose(CRASH.format(exception="ValueError: x")).port_taken


def test_no_sglang() -> None:
    found = diagnose("/usr/bin/python3: No module named sglang.launch_server\n", exit_code=1)
    assert found.what == "the interpreter holds no SGLang"


def test_a_wrong_flag_shows_the_message_of_the_parser() -> None:
    found = diagnose("usage: sglang serve ...\nsglang serve: error: unrecognized arguments: --nope\n", exit_code=2)
    assert found.culprit == "launch-flags"
    assert "unrecognized arguments: --nope" in found.what


def test_the_root_exception_is_shown_with_its_cause_and_not_the_last_line() -> None:
    chained = (
        "Traceback (most recent call last):\n  File 'a'\nKeyError: 'kimi'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n  File 'b'\nRuntimeError: could not load\n"
    )
    assert root_exception(chained) == "RuntimeError: could not load (caused by KeyError: 'kimi')"
    assert root_exception(CRASH.format(exception="IndexError: 3")) == "IndexError: 3"
    later = "Traceback (most recent call last):\n  File 'c'\nTypeError: a consequence\n"
    assert root_exception(CRASH.format(exception="IndexError: 3") + later) == "IndexError: 3"
    assert root_exception(HEALTHY) is None


@pytest.mark.parametrize(
    ("code", "number", "says"), [(None, 9, "killed from outside"), (None, 11, "signal 11"), (3, None, "code 3")]
)
def test_a_wordless_death_is_told_by_its_code(code: int | None, number: int | None, says: str) -> None:
    assert says in diagnose(HEALTHY.partition("Uvicorn")[0], exit_code=code, exit_signal=number).what
