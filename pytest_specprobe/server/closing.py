"""What the end of a block or a run does to clients and servers: close each, whatever happened."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from pytest_specprobe.errors import ServerError, SpecprobeError


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


def close_all(closings: Iterable[Callable[[], None]]) -> None:
    """Call each of these, also after one has raised an error of ours.

    :raises SpecprobeError: what one of them raised; of several, a ServerError that tells what each said.
    """
    errors: list[SpecprobeError] = []
    for close in closings:
        try:
            close()
        except SpecprobeError as error:
            errors.append(error)
    if len(errors) > 1:
        what = "; ".join(error.what for error in errors)
        raise ServerError(what, culprit=errors[0].culprit, fix=errors[0].fix) from errors[0]
    if errors:
        raise errors[0]
