"""The child's environment and flags, the plug-in that it finds, and the one SGLang that all this fits."""

import ast
import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pytest_specprobe.engines.cpu import OVERLAY, SGLANG_VERSION, environment, server_args

ROOT = Path(__file__).parents[2]


def run_child(code: str, **env: str) -> "subprocess.CompletedProcess[str]":
    full = {**os.environ, **environment(os.environ), **env}
    return subprocess.run([sys.executable, "-c", code], env=full, capture_output=True, text=True, check=False)


def test_the_extra_installs_the_version_that_the_engine_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["sglang"] == [f"sglang=={SGLANG_VERSION}"]
    assert importlib.metadata.version("sglang").partition("+")[0] == SGLANG_VERSION


def test_the_overlay_comes_before_a_path_that_the_user_set() -> None:
    env = environment({"PYTHONPATH": "/a:/b", "OMP_NUM_THREADS": "4", "HF_HUB_OFFLINE": "0"})
    assert env["PYTHONPATH"] == f"{OVERLAY}:/a:/b"
    assert (env["OMP_NUM_THREADS"], env["HF_HUB_OFFLINE"]) == ("4", "0")
    assert environment({})["PYTHONPATH"] == str(OVERLAY)


def test_flags_give_the_draft_the_target_s_attention_where_sglang_would_not() -> None:
    assert "--speculative-draft-attention-backend" in server_args(speculative=True, mla=True)
    assert "--speculative-draft-attention-backend" not in server_args(speculative=False, mla=True)
    args = server_args(speculative=True, mla=False, max_total_tokens=777, max_running_requests=3)
    assert args[args.index("--max-total-tokens") + 1] == "777"
    assert args[args.index("--max-running-requests") + 1] == "3"


FIND = "import importlib.metadata as m; print([p.name for p in m.entry_points(group='sglang.srt.plugins')])"


def test_only_a_child_on_the_overlay_finds_the_plug_in() -> None:
    assert "specprobe_cpu" in run_child(FIND).stdout
    assert "specprobe_cpu" not in run_child(FIND, PYTHONPATH="").stdout


@pytest.mark.parametrize("pinned", ["0.5.22", "0.5.24", "0.5.23.post1", "0.5.2", ""])
def test_the_plug_in_ends_a_process_of_any_sglang_but_the_pinned_one(pinned: str) -> None:
    child = run_child("import specprobe_cpu; specprobe_cpu.activate()", SPECPROBE_CPU_ENGINE_SGLANG=pinned)
    assert child.returncode == 1
    assert f"SGLang {pinned or '(unset)'} is needed, this is 0.5.23" in child.stderr


def test_the_plug_in_answers_the_backend_s_question_and_not_the_library_s() -> None:
    code = """\
import torch.cpu
torch.cpu._is_amx_tile_supported = lambda: True
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import cpu_has_amx_support
print(get_platform().has_amx, cpu_has_amx_support())
"""
    child = run_child(code)
    assert child.stdout.splitlines()[-1:] == ["True False"], child.stderr[-2000:]


def test_the_child_takes_the_overlay_for_sgl_kernel_and_the_tests_do_not() -> None:
    code = "import importlib.util as u; print(u.find_spec('sgl_kernel').origin)"
    assert Path(run_child(code).stdout.strip()).is_relative_to(OVERLAY)
    assert not Path(run_child(code, PYTHONPATH="").stdout.strip()).is_relative_to(OVERLAY)


@pytest.mark.parametrize("path", sorted(OVERLAY.rglob("*.py")), ids=lambda p: p.name)
def test_the_overlay_needs_only_what_every_server_s_interpreter_has(path: Path) -> None:
    allowed = {"torch", "sglang", "sgl_kernel"} | sys.stdlib_module_names
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        assert {name.partition(".")[0] for name in names} <= allowed
