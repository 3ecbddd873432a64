"""The child's environment and flags, the plug-in that it finds, and the one SGLang that all this fits."""

import ast
import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pytest_specprobe.engines.cpu import OVERLAY, SGLANG_VERSION, environment, require_version, server_args
from pytest_specprobe.errors import BootError

ROOT = Path(__file__).parents[2]


def run_child(code: str, **env: str) -> "subprocess.CompletedProcess[str]":
    full = {**os.environ, **environment(os.environ), **env}
    return subprocess.run([sys.executable, "-c", code], env=full, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("found", ["0.5.23", "0.5.23+cpu"])
def test_the_pinned_version_works(found: str) -> None:
    require_version(found)


@pytest.mark.parametrize("found", ["0.5.22", "0.5.24", "0.5.23.post1", "0.5.23rc1", "0.5.2"])
def test_any_other_version_is_refused_by_name(found: str) -> None:
    with pytest.raises(BootError, match=rf"SGLang 0\.5\.23 only, and the interpreter holds {found}") as caught:
        require_version(found)
    assert caught.value.culprit == "machine"
    assert "pip install 'sglang==0.5.23'" in caught.value.fix


def test_an_interpreter_without_sglang_is_told_what_to_install() -> None:
    with pytest.raises(BootError, match="holds no SGLang") as caught:
        require_version(None)
    assert "sglang==0.5.23" in caught.value.fix


def test_the_extra_installs_the_version_that_the_engine_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["sglang"] == [f"sglang=={SGLANG_VERSION}"]
    require_version(importlib.metadata.version("sglang"))


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


def test_the_plug_in_ends_a_process_of_another_sglang() -> None:
    child = run_child("import specprobe_cpu; specprobe_cpu.activate()", SPECPROBE_CPU_ENGINE_SGLANG="0.5.24")
    assert child.returncode == 1
    assert "SGLang 0.5.24 is needed, this is 0.5.23" in child.stderr


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
