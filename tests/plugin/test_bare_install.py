"""The core install alone, in an environment of its own: no SGLang, no torch, and it says exactly what to type."""

import json
import re
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"


def core(name: str = "pytest-specprobe", found: dict[str, Distribution] | None = None) -> dict[str, Distribution]:
    """What ``pip install pytest-specprobe`` brings, by name."""
    found = {} if found is None else found
    for line in distribution(name).requires or ():
        asked = Requirement(line)
        key = re.sub(r"[-_.]+", "-", asked.name).lower()
        if key not in found and (asked.marker is None or asked.marker.evaluate({"extra": ""})):
            found[key] = distribution(key)
            core(key, found)
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds the package and its requirements, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "env", symlinks=True)
    site = next((folder / "env" / "lib").glob("python*")) / "site-packages"
    for one in core().values():
        for top in {path.parts[0] for path in one.files or () if path.parts[0] not in {"..", "__pycache__"}}:
            there = Path(str(one.locate_file(top)))
            if there.exists() and not (site / top).exists():
                (site / top).symlink_to(there)
    info = Path(str(distribution("pytest-specprobe").locate_file("")))
    own = next(info.glob("pytest_specprobe-*.dist-info"))
    (site / own.name).symlink_to(own)
    (site / "here.pth").write_text(f"{ROOT}\n")
    return folder / "env" / "bin" / "python"


def specprobe(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"from pytest_specprobe.cli import main; raise SystemExit(main({list(arguments)!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_the_environment_is_bare(bare: Path) -> None:
    code = "import importlib.util as u; print([n for n in ('sglang', 'torch', 'transformers') if u.find_spec(n)])"
    run = subprocess.run([bare, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_doctor_says_what_is_missing_and_what_to_type(bare: Path) -> None:
    run = specprobe(bare, "doctor")
    assert run.returncode == 1, run.stderr
    lines = run.stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("MISSING")] == ["sglang"]
    install = next(line.strip() for line in lines if "pip install 'sglang" in line)
    assert install == f"next: {bare} -m pip install 'sglang==0.5.23'"
    assert lines[-1].startswith("no server can be booted here; without one: specprobe inspect")
    found = json.loads(specprobe(bare, "doctor", "--json").stdout)
    assert found["runs"] == {"cpu": False, "cuda": False}
    assert specprobe(bare, "doctor", "--python", sys.executable).returncode == 0, "SGLang in another environment"


def test_what_needs_no_server_works_there(bare: Path) -> None:
    run = specprobe(bare, "inspect", str(FIXTURES / "aq_k2_mini"), "--target", str(FIXTURES / "mini_k25"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert specprobe(bare, "report", str(ROOT / "docs" / "records" / "mini-cpu"), "--format", "html").returncode == 0


def test_a_probe_says_the_same(bare: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [bare, "-m", "pytest", "--specprobe-drafter=aq_k2_mini"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 11, run.stdout + run.stderr
    assert f"{bare} -m pip install 'sglang==0.5.23'" in run.stdout
    assert "Traceback" not in run.stdout
