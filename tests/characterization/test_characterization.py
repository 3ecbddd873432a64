"""Estimates, findings, decisions, keys and renderings are what they were, byte for byte.

A golden file that changes is rewritten in the commit that means the change, and its difference read:
``python -m tests.characterization.rewrite NOUN``.
"""

import ast
from pathlib import Path

import pytest

from tests.characterization.golden import FOLDER, difference, number
from tests.characterization.nouns import NOUNS

HERE = Path(__file__).parent


@pytest.mark.parametrize("noun", NOUNS)
def test_is_as_it_was(noun: str) -> None:
    told = difference(noun, NOUNS[noun]())
    if told is not None:
        pytest.fail(told, pytrace=False)


def test_every_golden_file_has_its_noun() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(NOUNS)


def test_only_the_adapters_know_the_product() -> None:
    for path in HERE.glob("*.py"):
        if path.name.startswith("adapter"):
            continue
        names = {
            name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not [name for name in names if name.startswith("pytest_specprobe")], path.name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.23456789, "1.234568"),
        (1.4999999999999998, "1.5"),
        (-0.0, "0.0"),
        (1e-9 / 3, "3.333333e-10"),
        (123456789.0, "123456800.0"),
    ],
)
def test_the_sixteenth_digit_changes_no_line(value: float, shown: str) -> None:
    assert number(value) == shown
