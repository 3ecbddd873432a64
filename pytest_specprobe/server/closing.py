"""What a ``with`` block does to a client or a server: close it, whatever happened inside."""

from types import TracebackType
from typing import Self


class Closing:
    """Base of what has a ``close``; leaving a ``with`` block calls it and hides no error."""

    def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
