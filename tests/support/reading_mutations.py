"""Hostile versions of a good document: by its values (JSON, TOML) and by its bytes. One seed, one document."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

LONG = "1" + "0" * 399
# Raw JSON, so that what no Python value says can be said: lone surrogates, NaN, 1e999, numbers of many digits.
VALUES = (
    "null", "true", "false", "0", "1", "-1", "2", "1.5", "-0.0", "1e308", "1e-320", "1e999", "-1e999", "NaN",
    "Infinity", "-Infinity", "1e30", str(10**30), str(10**39), str(-(10**39)), str(2**63), str(2**64), LONG,
    "-" + LONG, "9" * 5000, "0." + "1" * 500, '""', '" "', '"a"', '"0"', '"nan"', '"inf"',
    '"1e999"', '"' + LONG + '"',
    '"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\u001b[2J"', '"\\n::error::x"', '"\\u202e"',
    '"../../etc/passwd"', '"/dev/zero"', '"/"', '"."', '"~"', '"%s%n"', '"{0.__class__}"', '"<script>"',
    '"' + "x" * 5000 + '"',
    '"' + "\\u00e9" * 300 + '"', "[]", "{}", "[[]]", "[null]", '[""]', "[0, 1, 2]", "[-1, 1e308]", f"[{LONG}]",
    '{"": {}}', '{"\\ud800": 1}', '{"a": NaN}', "[" + "0," * 3000 + "0]", "[" * 40 + "]" * 40, "[" * 70 + "]" * 70,
    "[" * 900 + "]" * 900, "[" * 60_000, '{"a":' * 900 + "1" + "}" * 900,
)  # fmt: skip
PIECES = (
    b"\xff", b"\xed\xa0\x80", b"\x00", b"\\ud800", b"\\", b'"', b"[" * 2000, b"{" * 2000, b"]", b"}", b",", b":",
    b"\n", b"\r", b"\xef\xbb\xbf",
    LONG.encode(), b"NaN", b"-", b"1e999", b"\x1b[2J", b"//", b"#", b"'", b".a" * 2000, b"=",
)  # fmt: skip


def json_document(chance: random.Random, document: Any) -> bytes:
    """Return the document with one to three values, keys or bytes made hostile."""
    spoiled = json.loads(json.dumps(document))
    fragments: list[str] = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        spoiled = _spoil(chance, spoiled, fragments)
    text = re.sub(r'"@(\d+)@"', lambda match: fragments[int(match[1])], json.dumps(spoiled))
    body = text.encode()
    return bytes_of(chance, body) if chance.random() < 0.15 else body


def json_lines(chance: random.Random, documents: list[Any]) -> bytes:
    """Return JSON lines of which one is made hostile."""
    lines = [json.dumps(document).encode() for document in documents]
    at = chance.randrange(len(lines))
    lines[at] = json_document(chance, documents[at])
    return b"\n".join(lines) + (b"\n" if chance.random() < 0.9 else b"")


def toml_document(chance: random.Random, text: str) -> bytes:
    """Return TOML with a value, a key or bytes made hostile."""
    extra = (
        "nan",
        "-inf",
        "1979-05-27",
        "07:32:00",
        "0x" + "f" * 400,
        "1_000",
        "'''\n'''",
        "{ a.b.c = 1 }",
        "[1, 'a']",
    )
    way = chance.random()
    if way < 0.6:
        spots = list(re.finditer(r"= ([^\n]+)", text))
        spot = chance.choice(spots)
        text = text[: spot.start(1)] + chance.choice(VALUES + extra) + text[spot.end(1) :]
    elif way < 0.8:
        key = chance.choice(
            ("a" + ".a" * chance.choice((3, 40, 5000)), '"\\u0000"', "''", "x" * 5000, "targets", "tp")
        )
        line = chance.choice((f"{key} = 1", f"[{key}]", f"[[{key}]]", f"{key}", f"{key} = {{ {key} = {{}} }}"))
        lines = text.split("\n")
        lines.insert(chance.randrange(len(lines) + 1), line)
        text = "\n".join(lines)
    body = text.encode("utf-8", "surrogatepass")
    return bytes_of(chance, body) if way > 0.8 else body


def bytes_of(chance: random.Random, body: bytes) -> bytes:
    """Return the bytes cut, flipped, doubled or with a piece put in."""
    at = chance.randrange(len(body) + 1)
    to = min(len(body), at + chance.randrange(1, 40))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: body[:at],
        lambda: body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :],
        lambda: body[:at] + chance.choice(PIECES) + body[at:],
        lambda: body[:at] + chance.choice(PIECES) + body[to:],
        lambda: body[:at] + body[to:],
        lambda: body[:to] + body[at:],
        lambda: body.decode(errors="replace").encode("utf-16"),
        lambda: b"",
    )
    return chance.choice(ways)()


def _spoil(chance: random.Random, document: Any, fragments: list[str]) -> Any:
    """Put a mark in the place of a value or a key; what it stands for is added to ``fragments``."""
    places = list(_places(document))
    if not places:
        return _mark(chance, fragments)
    # Shallow values decide most; any depth is reached.
    holder, key = min(chance.sample(places, k=min(2, len(places))), key=lambda place: place[2])[:2]
    way = chance.random()
    if way < 0.75:
        holder[key] = _mark(chance, fragments)
    elif way < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder[key:key] = [holder[key]] * chance.choice((1, 2, 500))
    else:
        holder[_mark(chance, fragments, texts=True)] = holder.pop(key)
    return document


def _mark(chance: random.Random, fragments: list[str], *, texts: bool = False) -> str:
    fragments.append(chance.choice([value for value in VALUES if value[0] == '"' or not texts]))
    return f"@{len(fragments) - 1}@"


def _places(document: Any, depth: int = 0) -> Any:
    for key in document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ():
        yield document, key, depth
        yield from _places(document[key], depth + 1)
