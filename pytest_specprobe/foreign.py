"""Text that others wrote (files, servers, logs, processes): it is shown, and never obeyed.

Invariant: every pattern here and elsewhere that runs over such text is linear in its length, and lines are cut first.
"""

import json
import re
import unicodedata

LINE = 4096  # characters of a log line that are looked at
SAID = 300  # characters of what a finding or an error repeats of others' words

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_SEQUENCES = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")
_COLONS = re.compile(r"(?<!\S):{2,}+")
_HASHES = re.compile(r"#(?=#\w{0,20}\[)")
_ENDS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]++")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return text that a terminal and a CI job show and do not obey.

    Colours are dropped, every other control is replaced, and the marks of CI commands are broken by a blank. Line
    ends, tabs and spaces of all kinds stay.
    """
    shown = "".join(
        c if c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" else _REPLACEMENT
        for c in _COLOURS.sub("", text)
    )
    return unmarked(shown)


def unmarked(text: str) -> str:
    """Return text with every mark of a CI command broken.

    GitHub obeys ``::error`` at the start of a line, blanks before it or not, and a line may begin wherever text is
    wrapped; Azure and TeamCity obey ``##vso[``, ``##[`` and ``##teamcity[`` anywhere in a line.
    """
    return _HASHES.sub("# ", _COLONS.sub(lambda colons: " ".join(colons[0]), text))


def one_line(text: str, limit: int = SAID) -> str:
    """Return text on one line (line ends become a visible mark), cut."""
    return cut(_ENDS.sub(" \N{DOWNWARDS ARROW WITH CORNER LEFTWARDS} ", text), limit)


def json_text(document: object, *, indent: int | None = None) -> str:
    """Return JSON that a CI job does not obey: of two hashes the second is written as its number."""
    return json.dumps(document, indent=indent).replace("##", "#\\u0023")


def uncoloured(text: str) -> str:
    """Return text without the escape sequences that colour it or move the cursor."""
    return _SEQUENCES.sub("", text) if "\x1b" in text else text


def cut(text: str, limit: int = SAID) -> str:
    """Return the first ``limit`` characters, and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit:,} more characters)"


def cut_lines(text: str, limit: int = LINE) -> str:
    """Return text with every line cut."""
    if len(text) <= limit:
        return text
    return "\n".join(cut(line, limit) for line in text.split("\n"))
