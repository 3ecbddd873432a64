"""What is collected, in which order, under which ids; and what a plan prints."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.stand_in import FIXTURES

ITEMS = [
    "specprobe/test_vocab_mapping.py::test_vocab_mapping[{0}]",
    "specprobe/test_wiring.py::test_wiring[{0}]",
    "specprobe/test_boot.py::test_boot[{0}]",
    "specprobe/test_acceptance.py::test_acceptance[{0}]",
    "specprobe/test_acceptance.py::test_reads_target[{0}]",
    "specprobe/test_throughput.py::test_throughput[{0}-{1}-1]",
    "specprobe/test_throughput.py::test_verdict[{0}]",
    "specprobe/test_history.py::test_history[{0}]",
]
WORKLOADS = {"aq_k2": "default", "aq_k2_mini": "mini"}


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def test_collects_the_suite_grouped_by_drafter(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--specprobe-drafter=aq_k2,aq_k2_mini", "--collect-only", "-q")
    assert result.ret == 0
    assert collected(result) == [item.format(name, WORKLOADS[name]) for name in WORKLOADS for item in ITEMS]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["specprobe/test_boot.py"], [ITEMS[2]]),
        (["specprobe/test_throughput.py::test_verdict"], [ITEMS[6]]),
        (["-k", "vocab or wiring"], ITEMS[:2]),
        (["--specprobe-static"], ITEMS[:2]),
    ],
)
def test_parts_can_be_chosen(pytester: pytest.Pytester, args: list[str], expected: list[str]) -> None:
    result = pytester.runpytest_subprocess("--specprobe-drafter=aq_k2", "--collect-only", "-q", *args)
    assert collected(result) == [item.format("aq_k2", "default") for item in expected]


def test_the_drafter_may_come_from_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nspecprobe_drafter = aq_k2\nspecprobe_static = true\n")
    result = pytester.runpytest_subprocess("--collect-only", "-q")
    assert collected(result) == [item.format("aq_k2", "default") for item in ITEMS[:2]]


def test_own_tests_get_the_drafter_in_their_id(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own="def test_own(specprobe_profile):\n    assert specprobe_profile.target.tp == 8\n")
    result = pytester.runpytest_subprocess("--specprobe-drafter=aq_k2", "test_own.py", "-v")
    result.stdout.fnmatch_lines(["test_own.py::test_own[[]aq_k2[]] PASSED*"])
    assert result.ret == 0


def test_plan_names_command_checks_and_what_is_missing(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--specprobe-drafter=aq_k2", "--specprobe-plan")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "aq_k2: drafter AQ-MedAI/Kimi-K2-Instruct-eagle3 on target kimi_k25 (moonshotai/Kimi-K2.5)",
            "*2/1/3 steps/topk/draft tokens: accept length at most 3",
            "*remote code*allowed by the profile",
            "*sglang.launch_server*--tp-size 8*--speculative-algorithm EAGLE3*--mem-fraction-static 0.85*",
            "*missing*hf download AQ-MedAI/Kimi-K2-Instruct-eagle3*",
            "*missing*8 GPUs needed, 0 found*",
        ]
    )
    assert not (pytester.path / ".specprobe").exists()


def test_the_planned_command_is_the_one_that_would_boot(pytester: pytest.Pytester) -> None:
    """With the flags that an MLA target needs on the CPU, and those of a project's own hook."""
    pytester.makeconftest("def pytest_specprobe_server_args(profile):\n    return ['--context-length', '1536']\n")
    result = pytester.runpytest_subprocess(
        "--specprobe-drafter=aq_k2_mini,dense_mini", "--specprobe-device=cpu", "--specprobe-plan"
    )
    assert result.ret == 0
    mla, dense = [line for line in result.outlines if "sglang.launch_server" in line]
    assert "--speculative-draft-attention-backend intel_amx" in mla
    assert "--speculative-draft-attention-backend" not in dense
    assert all(line.endswith("--context-length 1536") for line in (mla, dense))


def test_a_machine_without_files_and_gpus_ends_in_11(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--specprobe-drafter=aq_k2")
    assert result.ret == 11
    result.stdout.fnmatch_lines(
        [
            (
                "*cannot be probed here: "
                "*drafter 'AQ-MedAI/Kimi-K2-Instruct-eagle3' not found; looked at*hf download*"
                "*target 'moonshotai/Kimi-K2.5' not found*hf download moonshotai/Kimi-K2.5*"
                "*8 GPUs needed, 0 found*"
            ),
        ]
    )
    assert "Traceback" not in result.stdout.str()
    # how often a paragraph wraps is a matter of how long the paths of this machine are
    wrapped = [line for line in result.outlines if line.startswith(" " * 19)]
    assert len(result.outlines) - len(wrapped) < 60, "about one screen"
    report = json.loads((pytester.path / ".specprobe" / "report.json").read_text())
    assert report["drafters"][0]["gate"] == "error"
    assert report["drafters"][0]["verdict"] is None
    assert report["drafters"][0]["acceptance"] is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--specprobe-drafter=aq_k3"], "*no drafter profile is named 'aq_k3'; did you mean aq_k2*"),
        (["--specprobe-plan"], "*--specprobe-plan needs --specprobe-drafter=NAME*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-device=tpu"], "*'tpu' is not auto, cuda or cpu*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-baseline=fast"], "*'fast' is not a positive number*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-server=here"], "*'here' is no URL*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-concurrency=0"], "*'0' is not a list of whole numbers*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-sweep=3/1"], "*'3/1' is not STEPS/TOPK/TOKENS*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-sweep=3/1/5"], "*3/1/5*must be num_steps + 1 = 4, not 5*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-boot-timeout=nan"], "*'nan' is not a positive number*"),
        (["--specprobe-drafter=aq_k2", "--specprobe-profiles=none.toml"], "*no such file*none.toml*"),
        (["--specprobe-drafter=aq_k2", "-n2"], "*does not run under pytest-xdist*"),
        (["--specprobe-drafter=aq_k2", "--dist=load", "--tx=2*popen"], "*does not run under pytest-xdist*"),
    ],
)
def test_unusable_options_end_in_4(pytester: pytest.Pytester, args: list[str], message: str) -> None:
    result = pytester.runpytest_subprocess(*args)
    assert result.ret == 4
    result.stderr.fnmatch_lines([message])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["1/1/2,2/1/3,3/1/4,2/2/4"], "1/1/2, 3/1/4, 2/2/4: 2 more boots, one at a time, 1/1/2, 3/1/4 on one"),
        (["2/1/3,3/1/4"], "3/1/4: 1 more boot, one at a time"),
        (["1/1/2", "--specprobe-server=http://127.0.0.1:1"], "1/1/2: lower estimates of shorter chains*"),
    ],
)
def test_a_plan_prices_the_sweep_in_boots(pytester: pytest.Pytester, args: list[str], says: str) -> None:
    sweep, *more = args
    pytester.makeini("[pytest]\nspecprobe_device = cpu\n")
    result = pytester.runpytest_subprocess(
        "--specprobe-drafter=aq_k2_mini", f"--specprobe-sweep={sweep}", *more, "--specprobe-plan"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"  sweep         {says}"])


def test_a_plan_over_several_machines_says_what_each_must_run(pytester: pytest.Pytester) -> None:
    nodes = ["--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:20000"]
    (pytester.path / "specprobe.toml").write_text(f"[targets.kimi_k25]\nserver_args = {nodes}\ntp = 16\n")
    result = pytester.runpytest_subprocess("--specprobe-drafter=aq_k2", "--specprobe-plan")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  server * --tp-size 16 * --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:20000",
            "  node 1 * --tp-size 16 * --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:20000 --node-rank 1",
            "*8 GPUs needed, 0 found*",
        ]
    )


BROKEN = """
[drafters.bad]
source = "bad"
target = "mini_k25"
speculation = { num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }
"""


def test_a_narrowed_run_of_a_broken_drafter_is_not_green(pytester: pytest.Pytester) -> None:
    """The one selected test passes; what is broken is something else."""
    drafter = shutil.copytree(FIXTURES / "scratch_k25_mini", pytester.path / "bad")
    config = json.loads((drafter / "config.json").read_text()) | {"num_attention_heads": 3}
    (drafter / "config.json").write_text(json.dumps(config))
    (pytester.path / "specprobe.toml").write_text(BROKEN)
    result = pytester.runpytest_subprocess("--specprobe-drafter=bad", "--specprobe-static", "-k", "vocab_mapping")
    result.assert_outcomes(passed=1, deselected=7)
    result.stdout.fnmatch_lines(["*BROKEN*", "*gate * failed"])
    assert result.ret == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [(["--fixtures"], 0), (["--cache-show"], 0), (["--setup-plan"], 0), (["nowhere.py"], 4), (["-k", "nothing"], 5)],
)
def test_a_run_without_tests_leaves_the_last_report(pytester: pytest.Pytester, args: list[str], code: int) -> None:
    kept = pytester.mkdir(".specprobe") / "report.json"
    kept.write_text("the last run's")
    result = pytester.runpytest_subprocess("--specprobe-drafter=dense_mini", "--specprobe-static", *args)
    assert result.ret == code
    assert kept.read_text() == "the last run's"
    assert "= specprobe =" not in result.stdout.str()


def test_a_report_that_cannot_be_written_is_an_error_and_not_a_crash(pytester: pytest.Pytester) -> None:
    (pytester.path / ".specprobe").write_text("a file of the user's")
    result = pytester.runpytest_subprocess("--specprobe-drafter=dense_mini", "--specprobe-static")
    assert result.ret == 11
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*the report cannot be written below *.specprobe*", "  culprit: machine"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert (pytester.path / ".specprobe").read_text() == "a file of the user's"


def test_all_unusable_options_are_said_at_once(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        "--specprobe-drafter=aq_k2", "--specprobe-device=tpu", "--specprobe-concurrency=x"
    )
    result.stderr.fnmatch_lines(["*'x' is not a list*", "*tpu*"])


UNUSABLE = """
[targets.own]
model = "fixtures://mini_llama"
devices = ["cpu"]
server_args = ["--port", "1"]
[drafters.own]
source = "fixtures://dense_mini"
target = "own"
workload = "none.jsonl"
speculation = { num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }
"""


@pytest.mark.parametrize("args", [[], ["--specprobe-plan"], ["--specprobe-server=http://127.0.0.1:1"]])
def test_a_profile_that_cannot_run_is_refused_before_anything_boots(
    pytester: pytest.Pytester, args: list[str]
) -> None:
    (pytester.path / "specprobe.toml").write_text(UNUSABLE)
    result = pytester.runpytest_subprocess("--specprobe-drafter=own,nobody", *args)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*'nobody'*server_args may not hold --port*none.jsonl*does not exist*"])
    assert not (pytester.path / ".specprobe").exists()


def test_files_alone_are_checked_without_the_workload(pytester: pytest.Pytester) -> None:
    text = UNUSABLE.replace('server_args = ["--port", "1"]\n', "")
    (pytester.path / "specprobe.toml").write_text(text)
    assert pytester.runpytest_subprocess("--specprobe-drafter=own", "--specprobe-static").ret == 0
    (pytester.path / "specprobe.toml").write_text(UNUSABLE)
    assert pytester.runpytest_subprocess("--specprobe-drafter=own", "--specprobe-static").ret == 4


@pytest.mark.parametrize(
    ("python", "says"),
    [
        ("nowhere/python", "*cannot be run: No such file or directory*"),
        ("/bin/true", "*SGLang is not installed in /bin/true*"),
    ],
)
@pytest.mark.parametrize(("plan", "code"), [(True, 0), (False, 11)])
def test_an_interpreter_that_cannot_run_hides_no_other_problem(
    pytester: pytest.Pytester, python: str, says: str, *, plan: bool, code: int
) -> None:
    args = ["--specprobe-drafter=aq_k2", f"--specprobe-python={python}", *(["--specprobe-plan"] if plan else [])]
    result = pytester.runpytest_subprocess(*args)
    assert result.ret == code
    result.stdout.fnmatch_lines(["*hf download moonshotai/Kimi-K2.5*", "*8 GPUs needed*"])
    result.stdout.fnmatch_lines([f"{says}--specprobe-python*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_an_installed_wheel_says_that_the_mini_family_needs_a_clone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(__file__).parents[2] / "pytest_specprobe"
    installed = pytester.path / "site" / "pytest_specprobe"
    installed.parent.mkdir()
    # a link would resolve to this repository; an installed package has no fixtures beside it

    shutil.copytree(package, installed, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    result = pytester.runpytest_subprocess("--specprobe-drafter=aq_k2_mini")
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*clone needed*"])
