"""The docs say what the code does: generated pages are fresh, and every block is run, or it is said what runs it.

Blocks marked ``console`` are run in one folder per page and their output is compared (``...`` stands for anything).
Lines of ``bash`` blocks are run as they stand, with mini checkpoints where a reader's own would be, and a stand-in
where a server is to run already; what boots servers is in ``RUN_BY``, with the test that runs it for real. Output
blocks are screens of a record (docs/figures.py). CI files are taken apart in the same way.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with huggingface-hub

from docs.build_reference import reference
from pytest_specprobe.checkpoint.table import markdown as checks
from pytest_specprobe.profiles import load_profiles
from pytest_specprobe.report.store import history
from tests.support.stand_in import Handler, Plain, serving

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIXTURES = ROOT / "fixtures"
EXAMPLE = DOCS / "records" / "mini-cpu"
GENERATED = ("docs/reference.md", "docs/checks.md")
PAGES = sorted(
    {str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *DOCS.glob("*.md"), DOCS / "records" / "README.md")}
    - set(GENERATED)
)
MINI = "pytest --specprobe-drafter=aq_k2_mini"
# what boots servers or makes environments, and where that very thing is done for real
RUN_BY = {
    MINI: "proofs/test_founding_story.py",
    f"{MINI} --junitxml=junit.xml": "proofs/test_ci_file.py",
    f"{MINI} --benchmark-autosave": "tests/plugin/test_benchmark.py",
    f"{MINI} --benchmark-compare --benchmark-compare-fail=mean:10%": "tests/plugin/test_benchmark.py",
    f"{MINI} --specprobe-sweep=1/1/2,3/1/4,3/2/6": "proofs/test_sweep.py",
    "pytest --specprobe-drafter=my_drafter": "tests/job/test_main_job.py",
    "pytest --specprobe-drafter=my_drafter --specprobe-sweep=2/1/3,4/1/5": "proofs/test_sweep.py",
    "SPECPROBE_PROOF_TABLES=tables pytest proofs/test_planted_faults.py": "proofs/test_planted_faults.py",
    "SPECPROBE_FAULT_TABLE=table.md pytest proofs/test_fault_matrix.py": "proofs/test_fault_matrix.py",
    "SPECPROBE_FUZZ_TABLE=table.md pytest proofs/test_fuzz.py": "proofs/test_fuzz.py",
    "SPECPROBE_HOSTILE_TABLE=table.md pytest proofs/test_hostile.py": "proofs/test_hostile.py",
    "SPECPROBE_PROOF_TABLES=tables pytest proofs/test_beside_sglang.py": "proofs/test_beside_sglang.py",
    "SPECPROBE_KEEP=DIR pytest proofs/test_history.py": "proofs/test_history.py",
    "python -m benchmarks.beside_sglang --server http://127.0.0.1:30000 --log server.log": (
        "proofs/test_beside_sglang.py"
    ),
    "python -m benchmarks.repeats --json repeats.json": "benchmarks/repeats.py",
    "specprobe serve aq_k2_mini --baseline": "tests/server/test_serve.py",
    "specprobe reap": "tests/server/test_serve.py",
    "pip install -e '.[sglang,report]'": "proofs/test_ci_file.py",
    f"python3 -m venv .venv && .venv/bin/pip install -e '.[sglang]' && .venv/bin/{MINI}": ".ci/run",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[sglang,test]' && .venv/bin/pytest": ".ci/run",
    'python -m docs.build_record NAME DIR --command "pytest --specprobe-drafter=NAME"': (
        "tests/docs/test_records.py"
    ),
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# exit codes of those that say something by them; how fast a stand-in is on a busy machine says nothing
CODES = {"specprobe compare": {0, 10}, "--specprobe-server": {0, 1, 10}, "test_mine.py": {0, 1, 10}}
KINDS = {"bash", "console", "python", "toml", "yaml", "markdown", "text"}
WEB = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[str]:
    """Every command that a page tells its reader to type, without its comment."""
    for block in blocks(page, "bash"):
        yield from (line.split("   #")[0].strip() for line in block.splitlines() if line.strip())
    for block in blocks(page, "yaml"):
        for job in jobs(yaml.safe_load(block)):
            yield from job


def jobs(document: dict[str, Any]) -> Iterator[list[str]]:
    if "jobs" in document:
        for job in document["jobs"].values():
            yield [step["run"] for step in job["steps"] if "run" in step]
    else:
        for job in document.values():
            yield [*job["script"], *job["after_script"]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with finished runs in it, and the reader's checkpoints."""
    for name in (".specprobe", "before", "after", "before/.specprobe", "after/.specprobe"):
        shutil.copytree(EXAMPLE, tmp_path / name)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "My-Drafter-EAGLE3").symlink_to(FIXTURES / "aq_k2_mini")
    (tmp_path / "models" / "My-Target").symlink_to(FIXTURES / "mini_k25")
    (tmp_path / "models" / "Kimi-K2-Instruct-eagle3").symlink_to(FIXTURES / "aq_k2_mini")
    (tmp_path / "models" / "Kimi-K2.5").symlink_to(FIXTURES / "mini_k25")
    return tmp_path


@pytest.fixture(scope="session")
def urls() -> Iterator[tuple[str, str]]:
    with serving(Handler) as server, serving(Plain) as plain:
        yield server, plain


def shell(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GITHUB_"))}
    env = keep | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100",
        "FIXTURES": str(FIXTURES), "EXAMPLE": str(home / ".specprobe"),
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-c", command], cwd=home, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def readers(command: str, home: Path, urls: tuple[str, str]) -> str:
    """The same command with what there is here in place of what a reader has."""
    run = history.read(EXAMPLE).runs[0].id
    for theirs, ours in (
        ("/models/", f"{home}/models/"), ("/opt/sglang/bin/python", sys.executable), ("1f0c2ab4", run),
        ("9b77d3e0", run), ("http://127.0.0.1:30000", urls[0]),
        ("SPECPROBE_API_KEY=...", "SPECPROBE_API_KEY=k"),
        ("--specprobe-baseline=82", "--specprobe-baseline=500"),
    ):  # fmt: skip
        command = command.replace(theirs, ours)
    command = re.sub(r"(^| )pytest --", r"\1python -m pytest --", command)
    if "test_mine.py" in command:
        command += f" --specprobe-server={urls[0]} --specprobe-baseline={urls[1]}"
    return command


def test_reference_is_fresh() -> None:
    assert (DOCS / "reference.md").read_text() == reference(), "python -m docs.build_reference > docs/reference.md"


def test_checks_are_fresh() -> None:
    made = checks()
    assert (DOCS / "checks.md").read_text() == made, "python -m pytest_specprobe.checkpoint.table > docs/checks.md"


@pytest.mark.parametrize("page", PAGES)
def test_console_blocks_say_what_really_happens(page: str, home: Path) -> None:
    checker = doctest.OutputChecker()
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, wanted = part.partition("\n")
            run = shell(command, home)
            seen = (run.stdout + run.stderr).replace(str(home), "HOME")
            right = checker.check_output(wanted, seen, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            assert right, f"$ {command}\nwanted:\n{wanted}\nsaw:\n{seen}"


@pytest.mark.parametrize("page", PAGES)
def test_bash_lines_do_what_they_say(page: str, home: Path, urls: tuple[str, str]) -> None:
    """In order, in one folder, with the page's own profile and test file there as a reader would have them."""
    (home / "test_mine.py").write_text("".join(blocks(page, "python")))
    whole = [block for block in blocks(page, "toml") if "source" in block]
    if whole:
        profile = whole[0].replace('"/models/', f'"{home}/models/')
        # as the stand-in speculates
        profile = profile.replace("num_steps = 3", "num_steps = 2").replace(
            "num_draft_tokens = 4", "num_draft_tokens = 3"
        )
        (home / "specprobe.toml").write_text(profile)
    for command in commands(page):
        if command in RUN_BY:
            continue
        run = shell(readers(command, home, urls), home)
        wanted = next((codes for part, codes in CODES.items() if part in command), {0})
        assert run.returncode in wanted, f"{command}\n{run.stdout}{run.stderr}"
        if "test_mine.py" in command:
            assert "1 passed" in run.stdout, run.stdout


def test_what_is_run_elsewhere_is_in_the_docs_and_there() -> None:
    typed = {command for page in PAGES for command in commands(page)}
    assert RUN_BY.keys() - typed == set()
    assert [place for place in RUN_BY.values() if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_something_runs(page: str) -> None:
    text = (ROOT / page).read_text()
    fences = re.findall(r"^(.*)\n```(.*)\n", text, flags=re.MULTILINE)[::1]
    opened = [(before, kind) for before, kind in fences if kind]
    assert {kind for _, kind in opened} <= KINDS
    assert text.count("\n```") == 2 * len(opened), "a block without a kind"
    for before, kind in opened:
        assert kind != "text" or before.startswith("<!-- screen "), "an output block that nothing holds to a record"


def test_ci_files_install_what_there_is_and_report(home: Path) -> None:
    found = [job for block in blocks("docs/tutorial.md", "yaml") for job in jobs(yaml.safe_load(block))]
    assert len(found) == 2
    for steps in found:
        install, probe, *after = steps
        extras = re.findall(r"\[(.*?)\]", install)[0].split(",")
        assert set(extras) <= EXTRAS.keys()
        assert probe.startswith("pytest --specprobe-drafter=")
        for command in after:
            assert shell(command, home).returncode == 0, command
        assert (home / ".specprobe" / "report.html").exists()


@pytest.mark.parametrize("page", [*PAGES, *GENERATED])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for link in WEB.findall(path.read_text()):
        assert (path.parent / link).exists(), link


def test_profiles_are_profiles(tmp_path: Path) -> None:
    """Every TOML block, over the README's profile: a key that is no more would be refused."""
    whole = next(block for block in blocks("README.md", "toml") if "source" in block)
    for page in PAGES:
        for at, block in enumerate(blocks(page, "toml")):
            if block != whole:
                (tmp_path / f"{at}.toml").write_text(block)
                (tmp_path / "specprobe.toml").write_text(whole)
                load_profiles(tmp_path, extra=tmp_path / f"{at}.toml").get("my_drafter")


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_compile(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block, page, "exec")
