"""A server's key and a process's variables, as objects that show nothing of themselves.

Invariant: a key is revealed inside one expression at the rim (a socket, a private file), and is never the value of a
local variable or an attribute. pytest prints both of every frame under ``-l``, whoever raised.
"""

import hmac
import secrets
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import NoReturn, Self
from urllib.parse import quote

HIDDEN = "***"
# How much of a key must be at an edge of a text that was cut there to be taken for the key: less is chance.
_EDGE = 8


class Secret:
    """A text that is used and not shown: it prints as ``***``, compares in constant time and is not serialised.

    :raises ValueError: if the text is empty, which would be found everywhere.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("a secret is not empty")
        object.__setattr__(self, "_text", text)

    @classmethod
    def random(cls) -> Self:
        """Return a new key of 48 hex digits."""
        return cls(secrets.token_hex(24))

    @classmethod
    def variable(cls, name: str, environ: Mapping[str, str]) -> Self | None:
        """Return the value of a variable; None where it is not set or empty."""
        return cls(environ[name]) if environ.get(name) else None

    def reveal(self) -> str:
        """Return the text itself; for use inside an expression, never to be assigned."""
        text: str = self._text  # type: ignore[attr-defined]  # a slot, set in __init__ past __setattr__
        return text

    def json(self) -> str:
        """Return the text as JSON writes it, quotes included; as ``reveal``, inside an expression only."""
        return encode_basestring_ascii(self.reveal())

    def hide(self, text: str) -> str:
        """Return ``text`` with ``***`` for every occurrence of this secret, as JSON and in URLs too.

        Eight characters or more of it at an edge of ``text`` go as well: the text may have been cut there.
        """
        text = text.replace(self.reveal(), HIDDEN)
        text = text.replace(self.json()[1:-1], HIDDEN).replace(quote(self.reveal(), safe=""), HIDDEN)
        return self._without_edges(text)

    def _without_edges(self, text: str) -> str:
        for size in range(min(len(self.reveal()) - 1, len(text)), _EDGE - 1, -1):
            if text.startswith(self.reveal()[-size:]):
                text = HIDDEN + text[size:]
            if text.endswith(self.reveal()[:size]):
                text = text[:-size] + HIDDEN
        return text

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret does not change")

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode(), other.reveal().encode())

    def __hash__(self) -> int:
        # one number for all: what a hash says of a key is something of the key
        return hash(Secret)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a secret is not serialised")


class Variables(dict[str, str]):
    """The variables of a process, with all their values; printed, it has the names alone."""

    def __repr__(self) -> str:
        return f"Variables({', '.join(sorted(self))})"

    __str__ = __repr__

    def __or__(self, other: Mapping[str, str]) -> "Variables":  # type: ignore[override]  # a dict would show itself
        return Variables({**self, **other})
