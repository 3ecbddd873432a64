"""Results that are computed when first asked for, and errors that are kept: a boot must not be tried twice."""

from collections.abc import Callable
from typing import Any, TypeVar

from pytest_specprobe.errors import SpecprobeError

T = TypeVar("T")


class Once:
    """A memo of named steps. Asking again for a step gives the same result, or raises the same error."""

    def __init__(self) -> None:
        self._results: dict[str, Any] = {}
        self._errors: dict[str, SpecprobeError] = {}

    def get(self, step: str, compute: Callable[[], T]) -> T:
        """Return the step's result, computing it the first time."""
        if step in self._errors:
            raise self._errors[step]
        if step not in self._results:
            try:
                self._results[step] = compute()
            except SpecprobeError as error:
                self._errors[step] = error
                raise
        result: T = self._results[step]
        return result

    def peek(self, step: str) -> Any:
        """Return the step's result if it was computed, else None."""
        return self._results.get(step)

    @property
    def version(self) -> int:
        """How many steps have a result or an error: what is computed from them stays true while this does."""
        return len(self._results) + len(self._errors)

    @property
    def errors(self) -> tuple[SpecprobeError, ...]:
        """The distinct errors so far, in order; a step that failed because an earlier one did adds none."""
        return tuple(dict.fromkeys(self._errors.values()))
