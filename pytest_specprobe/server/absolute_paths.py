"""Relative paths of a profile and of the environment, made absolute: a server runs in a folder of its own."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_specprobe.secret import Variables

_NAMES_A_PATH = re.compile(
    r"--.*(path|paths|file|dir|folder|template|map|keyfile|certfile|certs|location|target|config)"
)
# What such a flag names is written by the server, so it need not be there yet.
_IS_MADE = re.compile(r"--.*-(dir|folder|storage-path|save-path|export-path)")
_PLACE = re.compile(r".*(HOME|CACHE|DIR|PATH|ROOT|FILE|CONFIG|BASE)")
_FOLDER = re.compile(r".*_(HOME|CACHE|DIR|ROOT)")
_LISTS = frozenset({"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "LOCPATH"})


def absolute_words(words: Sequence[str], *, here: Path) -> tuple[str, ...]:
    """Return a server's command line as it means the same from any folder.

    A value is a path where its flag says so and it is there, seen from ``here``; ``NAME=PATH`` and ``@PATH`` too.
    Everything else (hub ids, names of templates, JSON) stays as it is.
    """
    return tuple(_words(words, here))


def absolute_variables(env: Mapping[str, str], *, here: Path) -> Variables:
    """Return an environment whose variables name the folders and files that they name seen from ``here``.

    A variable is a path where its name says so and it is there; a folder need not be there, ``~`` stays as it is.
    """
    return Variables({name: _variable(name, value, here) for name, value in env.items()})


def _variable(name: str, value: str, here: Path) -> str:
    if name in _LISTS or not _PLACE.fullmatch(name) or value.startswith(("~", "$")):
        return value
    return str(here / value) if value and _FOLDER.fullmatch(name) and ":" not in value else _there(value, here)


def _words(words: Sequence[str], here: Path) -> Iterator[str]:
    program, *rest = words
    yield str(here / program) if os.sep in program else program
    flag = ""
    for word in rest:
        if not word.startswith("--"):
            yield _value(flag, word, here)
            continue
        flag, equals, value = word.partition("=")
        yield f"{flag}={_value(flag, value, here)}" if equals else word


def _value(flag: str, value: str, here: Path) -> str:
    if not _NAMES_A_PATH.fullmatch(flag):
        return value
    if _IS_MADE.fullmatch(flag) and value and "://" not in value and not value.startswith("-"):
        return str(here / value)
    before, mark, path = value.rpartition("=") if "=" in value else ("", "@", value[1:])
    if mark == "=" or value.startswith("@"):
        return before + mark + _there(path, here)
    return _there(value, here)


def _there(value: str, here: Path) -> str:
    try:
        return str(here / value) if value and (here / value).exists() else value
    except (OSError, ValueError):
        return value
