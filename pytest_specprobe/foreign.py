"""Text that others wrote (files, servers, logs, processes): it is shown, and never obeyed.

Invariant: every pattern here and elsewhere that runs over such text is linear in its length, and lines are cut first.
"""

import re
import unicodedata

LINE = 4096  # characters of a log line that are looked at
SAID = 300  # characters of what a finding or an error repeats of others' words

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return text that a terminal shows and does not obey: colours are dropped, every other control is replaced.

    Line ends, tabs and spaces of all kinds stay.
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" else _REPLACEMENT
        for c in uncoloured(text)
    )


def uncoloured(text: str) -> str:
    """Return text without the escape sequences that colour it or move the cursor."""
    return _COLOURS.sub("", text) if "\x1b" in text else text


def cut(text: str, limit: int = SAID) -> str:
    """Return the first ``limit`` characters, and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit:,} more characters)"


def cut_lines(text: str, limit: int = LINE) -> str:
    """Return text with every line cut."""
    if len(text) <= limit:
        return text
    return "\n".join(cut(line, limit) for line in text.split("\n"))
