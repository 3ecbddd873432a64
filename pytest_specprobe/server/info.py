"""What a server says about itself: the answer of ``/server_info``, parsed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The resolved settings of a running server.

    ``settings`` holds every other key of the answer, redacted; ``internal`` one mapping per data-parallel rank
    (``internal_states``). Speculation fields are None where the server does not speculate.
    ``server_accept_length`` is SGLang's own running mean (``avg_spec_accept_length`` of rank 0), None if unknown.
    """

    version: str
    model_path: str
    algorithm: str | None
    draft_model_path: str | None
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    accept_threshold_single: float | None
    accept_threshold_acc: float | None
    server_accept_length: float | None
    settings: Mapping[str, Any]
    internal: tuple[Mapping[str, Any], ...]

    @classmethod
    def parse(cls, answer: object) -> Self:
        """Parse the JSON answer of ``/server_info`` (or ``/get_server_info``).

        :raises MeasurementError: if a required field is missing or has another type.
        """
        raise NotImplementedError


def differences(baseline: ServerInfo, speculative: ServerInfo) -> dict[str, tuple[Any, Any]]:
    """Return every effective difference outside ``speculative_*``: key -> (baseline's, speculative's)."""
    raise NotImplementedError
