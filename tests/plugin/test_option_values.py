"""Option values are written ``--option=VALUE`` wherever a person reads how to type one.

A value in a word of its own is taken for a test path where pytest looks for its rootdir, before it knows the options
of plugins: ``--specprobe-report /shared/out`` makes pytest read ``/shared/pytest.ini``.
"""

import re
from pathlib import Path

import pytest

from pytest_specprobe.options import _VALUES, DRAFTER

ROOT = Path(__file__).parents[2]
READ = sorted(
    path.relative_to(ROOT)
    for pattern in (
        "*.md", "docs/*.md", "benchmarks/**/*.md", "benchmarks/**/*.py", "fixtures/*.md", "proofs/*.md",
        "pytest_specprobe/**/*.py", "pytest_specprobe/**/*.toml", "pytest_specprobe/**/*.json",
    )
    for path in ROOT.glob(pattern)
)  # fmt: skip
NAMES = "|".join([DRAFTER.removeprefix("specprobe_"), *(name for name, *_ in _VALUES)])
# A placeholder in capitals, a number, a path, a URL, a variable, or a word that is a value.
BLANK = re.compile(
    rf"--specprobe-(?:{NAMES})['\"]?,? +['\"]?"
    r"(?:[A-Z][A-Z]*\b|[0-9{$~]|\.{0,2}/|https?:|(?:cpu|cuda|auto|boot|stored|alternating|none)\b)"
)


@pytest.mark.parametrize("path", READ, ids=str)
def test_no_text_shows_a_value_in_a_word_of_its_own(path: Path) -> None:
    assert BLANK.findall((ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("--specprobe-report /shared/out", True),
        ("pass --specprobe-profiles FILE", True),
        ("--specprobe-sweep 1/1/2", True),
        ("--specprobe-baseline stored", True),
        ('["--specprobe-server", "http://h:1"]', True),
        ("--specprobe-report=/shared/out", False),
        ("a run with --specprobe-drafter is kept", False),
        ("--specprobe-drafter boots one server", False),
        ("--specprobe-plan FILE", False),
    ],
)
def test_what_is_looked_for(text: str, *, found: bool) -> None:
    assert bool(BLANK.search(text)) is found


def test_a_value_in_a_word_of_its_own_moves_pytests_rootdir(pytester: pytest.Pytester) -> None:
    """Why: with ``=`` the project's own ini file is read, without it that of the folder that the value names."""
    shared = pytester.mkdir("shared")
    (shared / "out").mkdir()
    (shared / "pytest.ini").write_text("[pytest]\n")
    pytester.makeini("[pytest]\n")
    away = pytester.runpytest_subprocess("--co", "--specprobe-drafter=aq_k2_mini", "--specprobe-report", "shared/out")
    away.stdout.fnmatch_lines(["rootdir: */shared"])
    here = pytester.runpytest_subprocess("--co", "--specprobe-drafter=aq_k2_mini", "--specprobe-report=shared/out")
    here.stdout.no_fnmatch_line("rootdir: */shared")
