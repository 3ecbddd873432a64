"""The one reader of what others wrote: files, servers' answers, and what an earlier run of ours left.

Invariant: only a regular file is opened, without ever waiting; no more than ``Bounds.size`` bytes of it are taken;
and what is returned is valid Unicode within all bounds, so that it can be printed, kept, copied and counted with.
Anything else is one :class:`Unreadable`, which each edge turns into its own error with culprit and next step.
"""

import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, Literal

MiB = 1 << 20
# What tomllib's time depends on, in one pass: strings, comments and long numbers are stepped over whole.
_TOML = re.compile(
    r'"""(?:[^"\\]++|\\[\s\S]|"{1,2}(?!"))*+(?:"{3,5})?'
    r"|'''(?:[^']++|'{1,2}(?!'))*+(?:'{3,5})?"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+"
    r"|(?<![0-9_])[0-9][0-9_]{4299,}+"
    r"|[.\[\]{}=,\n]"
)
_DIGITS = bytes(ord("0") if chr(code).isdigit() and code < 128 else 32 for code in range(256))
_SURROGATE = re.compile("[\ud800-\udfff]")

Numbers = Literal["finite", "text", "any"]
"""What becomes of NaN, infinity and 1e999: refused, left as text (to be shown, never used), or taken as floats.

With ``text`` an integer of too many digits is left as text too; else it is refused.
"""


class Unreadable(ValueError):
    """Why something cannot be read: a short printable predicate, fit to stand behind the name of what was read."""

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is read at most: bytes, levels of nesting, values, digits of an integer, characters of one text.

    A tokenizer without a limit says 10**30 tokens, which has 31 digits.
    """

    size: int
    depth: int = 64
    items: int = 4_000_000
    digits: int = 40
    text: int = 8 * MiB


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[FileIO, int]]:
    """Open a regular file for reading, unbuffered; yield it with its size in bytes.

    Follows symbolic links (model caches are built of them). Never waits: a FIFO or a device is refused, not read.

    :raises Unreadable: if it is missing, no regular file, or may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise Unreadable("does not exist", missing=True) from error
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        raise Unreadable(f"is {kinds.get(stat.S_IFMT(status.st_mode), 'a device')}, not a file")
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        yield file, status.st_size


def read_bytes(path: Path, *, limit: int) -> bytes:
    """Return the bytes of a regular file.

    :raises Unreadable: also if there are more than ``limit``, or reading fails.
    """
    try:
        with open_regular(path) as (file, size):
            data = b"" if size > limit else b"".join(pieces(file, limit + 1))
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    if max(size, len(data)) > limit:
        raise Unreadable(f"is larger than {_amount(limit)}")
    return data


def pieces(file: FileIO, length: int) -> Iterator[bytes]:
    """Yield the next ``length`` bytes of an unbuffered file, or as many as there are: its reads may return less."""
    while length and (piece := file.read(min(length, MiB))):
        length -= len(piece)
        yield piece


def read_text(path: Path, *, limit: int) -> str:
    """Return the text of a regular file of at most ``limit`` bytes of UTF-8.

    :raises Unreadable: also if it is not UTF-8.
    """
    return _decoded(read_bytes(path, limit=limit))


def read_json(path: Path, bounds: Bounds, *, numbers: Numbers = "finite") -> Any:
    """Return the JSON value in a regular file.

    :raises Unreadable: if it is missing, no regular file, no JSON, or beyond a bound.
    """
    return parse_json(read_bytes(path, limit=bounds.size), bounds, numbers=numbers)


def parse_json(data: bytes | str, bounds: Bounds, *, numbers: Numbers = "finite", unique: bool = False) -> Any:
    """Return the JSON value in ``data``: text, or bytes of UTF-8 (a byte order mark is passed over).

    :param unique: refuse an object that has a key twice; else the last one wins.
    :raises Unreadable: if it is no JSON, or beyond a bound.
    """
    if len(data) > bounds.size:
        raise Unreadable(f"is larger than {_amount(bounds.size)}")
    text = _decoded(data).removeprefix("\ufeff") if isinstance(data, bytes) else data
    # Counted before anything is built. Those inside texts count too: the bound is far from what real files hold.
    brackets = text.count("[") + text.count("{")
    if text.count(",") + brackets > bounds.items:
        raise Unreadable(f"has more than {bounds.items:,} values")
    # What its characters show to be within all bounds is not looked through: a stream has a document per token.
    plain = brackets <= bounds.depth and len(text) <= bounds.text and "\\u" not in text
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    plain = plain and b"0" * (bounds.digits + 1) not in raw.translate(_DIGITS)
    try:
        return _parsed(text, bounds, _decoder(numbers, unique), plain=plain)
    except _TooManyDigits:
        if numbers != "text":
            raise
        return _parsed(text, bounds, _lenient(bounds.digits), plain=False)


def parse_toml(text: str, *, depth: int = 32) -> dict[str, Any]:
    """Return the tables of a TOML document; its values are not looked at (:func:`require_within` does that).

    :param depth: the most levels of brackets, and the most dots in one key: ``tomllib`` takes time by their square.
    :raises Unreadable: if it is no TOML, or beyond that.
    """
    dots = level = 0
    for match in _TOML.finditer(text):
        mark = match[0]
        dots = dots + 1 if mark == "." else 0 if mark in {"\n", "=", ",", "[", "{"} else dots
        level += (mark in {"[", "{"}) - (mark in {"]", "}"})
        if dots > depth or level > depth:
            raise Unreadable("is nested too deeply" if level > depth else f"has a key of more than {depth} parts")
        if mark[0].isdigit():
            raise Unreadable("has a number of too many digits")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"is not TOML: {error}") from error


def require_within(value: object, bounds: Bounds, *, numbers: Numbers = "finite", texts: bool = True) -> None:
    """Hold a parsed value against the bounds, level by level.

    :param texts: look at texts and keys too, which may be too long, or no Unicode.
    :raises Unreadable: naming what is beyond a bound.
    """
    largest, items = 10**bounds.digits, 0
    level: list[Any] = [[value]]
    for _ in range(bounds.depth + 1):
        inner: list[Any] = []
        for container in level:
            items += len(container)
            members = container.values() if isinstance(container, dict) else container
            kinds = set(map(type, members))
            if int in kinds and not _all_below(largest, members if len(kinds) == 1 else _of(int, members)):
                raise _TooManyDigits(f"has a number of more than {bounds.digits} digits")
            if float in kinds and numbers == "finite" and not all(map(math.isfinite, _of(float, members))):
                raise Unreadable("has a number that is not finite")
            if texts:
                _require_texts(_of(str, members), bounds.text)
                _require_texts(container if isinstance(container, dict) else (), bounds.text)
            if dict in kinds or list in kinds:
                inner += [member for member in members if isinstance(member, dict | list)]
        if items > bounds.items:
            raise Unreadable(f"has more than {bounds.items:,} values")
        if not inner:
            return
        level = inner
    raise Unreadable(f"is nested too deeply: more than {bounds.depth} levels")


class _TooManyDigits(Unreadable):
    """An integer has more digits than the bounds allow."""


def _parsed(text: str, bounds: Bounds, decoder: json.JSONDecoder, *, plain: bool) -> Any:
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not JSON: {error}") from error
    except Unreadable:
        raise
    except ValueError as error:
        # Python's own bound on the digits of an integer, which is far beyond ours.
        raise _TooManyDigits(f"has a number of more than {bounds.digits} digits") from error
    # Strict UTF-8 has no surrogates, so only an escape can make one; and no text is longer than the whole.
    if not plain:
        require_within(value, bounds, numbers="any", texts="\\u" in text or len(text) > bounds.text)
    return value


@cache
def _decoder(numbers: Numbers, unique: bool) -> json.JSONDecoder:  # noqa: FBT001 - cached by what it is made of
    pairs = _unique if unique else None
    if numbers == "text":
        return json.JSONDecoder(object_pairs_hook=pairs, parse_float=_finite_or_text, parse_constant=str)
    if numbers == "finite":
        return json.JSONDecoder(object_pairs_hook=pairs, parse_float=_finite, parse_constant=_finite)
    return json.JSONDecoder(object_pairs_hook=pairs)


@cache
def _lenient(digits: int) -> json.JSONDecoder:
    def integer(text: str) -> int | str:
        return int(text) if len(text) <= digits else text

    return json.JSONDecoder(parse_float=_finite_or_text, parse_constant=str, parse_int=integer)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Unreadable(f"has a number that is not finite: {text[:40]}")
    return value


def _finite_or_text(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        # The table keeps first appearances in order, so the first place where the two part is a repetition.
        twice = next((key for (key, _), kept in zip(pairs, entries, strict=False) if key != kept), pairs[-1][0])
        raise Unreadable(f"has the duplicate key {ascii(twice)[:80]}")
    return entries


def _all_below(largest: int, numbers: Collection[int]) -> bool:
    return max(numbers) < largest and min(numbers) > -largest


def _of(kind: type, members: Iterable[Any]) -> list[Any]:
    return [member for member in members if type(member) is kind]


def _require_texts(texts: Iterable[str], longest: int) -> None:
    for text in texts:
        if len(text) > longest:
            raise Unreadable(f"has a text of more than {longest:,} characters")
        if not text.isascii() and _SURROGATE.search(text):
            raise Unreadable("has a lone surrogate, which is no Unicode text")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 (byte {error.start})") from error


def _amount(size: int) -> str:
    return f"{size // MiB} MiB" if size >= MiB else f"{size:,} bytes"
