"""What a server says about itself: the answer of ``/server_info``, parsed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.server.http.generation import is_number
from pytest_specprobe.server.redaction import redact_value

# Differ between any two boots, or are measurements and not settings.
_NOT_SETTINGS = frozenset({
    "port", "random_seed", "nccl_port", "startup_time", "internal_states", "launch_command", "api_key", "status",
    "last_gen_throughput", "memory_usage", "avg_spec_accept_length", "max_speculative_num_draft_tokens",
    "forward_pass_metrics_ipc_name",
})  # fmt: skip

_DECODE_LOG_INTERVAL = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The resolved settings of a running server.

    ``settings`` holds the whole answer but ``internal_states``, redacted; ``internal`` one mapping per data-parallel
    rank (``internal_states``): where both name a setting, the latter is what runs. Speculation fields are None where
    the server does not speculate. ``server_accept_length`` is SGLang's own running mean over everything since its
    last flush (``avg_spec_accept_length`` of rank 0), None before its first log interval.
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
        if not isinstance(answer, dict):
            raise _bad(f"it is {type(answer).__name__}, not an object")
        shown = redact_value(answer)
        ranks = shown.pop("internal_states", None) or []
        if not isinstance(ranks, list) or not all(isinstance(rank, dict) for rank in ranks):
            raise _bad("internal_states is not a list of objects")
        # A rank's own state is live; the top level shows the values of the boot for ever.
        live = {**answer, **{k: v for k, v in (ranks[0] if ranks else {}).items() if k.startswith("speculative_")}}
        return cls(
            version=_field(answer, "version"),
            model_path=_field(answer, "model_path"),
            algorithm=_text(live, "speculative_algorithm"),
            draft_model_path=_text(live, "speculative_draft_model_path"),
            num_steps=_integer(live, "speculative_num_steps"),
            eagle_topk=_integer(live, "speculative_eagle_topk"),
            num_draft_tokens=_integer(live, "speculative_num_draft_tokens"),
            accept_threshold_single=_number(live, "speculative_accept_threshold_single"),
            accept_threshold_acc=_number(live, "speculative_accept_threshold_acc"),
            server_accept_length=_number(ranks[0] if ranks else {}, "avg_spec_accept_length"),
            settings=shown,
            internal=tuple(ranks),
        )

    @property
    def decode_log_interval(self) -> int:
        """Return every how many decode rounds SGLang adds to its totals; its own default where it does not say."""
        value = self.settings.get("decode_log_interval")
        return value if type(value) is int and value > 0 else _DECODE_LOG_INTERVAL

    def effective(self) -> dict[str, Any]:
        """Return what really runs: the resolved settings, overruled by what rank 0 says of itself."""
        return {**self.settings, **(self.internal[0] if self.internal else {})}


def differences(baseline: ServerInfo, speculative: ServerInfo) -> dict[str, tuple[Any, Any]]:
    """Return every effective difference outside ``speculative_*``: key -> (baseline's, speculative's).

    Nested settings are compared leaf by leaf, with dotted keys. Ports, seeds and measurements are no settings.
    """
    one, two = (_leaves(info.effective()) for info in (baseline, speculative))
    return {key: (one.get(key), two.get(key)) for key in sorted({*one, *two}) if one.get(key) != two.get(key)}


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in settings.items():
        # Keys with an underscore are SGLang's own bookkeeping of how a setting was resolved.
        if not prefix and (key in _NOT_SETTINGS or key.startswith(("speculative_", "_"))):
            continue
        if isinstance(value, Mapping):
            leaves |= _leaves(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = value
    return leaves


def _field(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str):
        raise _bad(f"{name} is {value!r}")
    return value


def _text(answer: Mapping[str, Any], name: str) -> str | None:
    return None if answer.get(name) is None else _field(answer, name)


def _integer(answer: Mapping[str, Any], name: str) -> int | None:
    value = answer.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(f"{name} is {value!r}")
    return value


def _number(answer: Mapping[str, Any], name: str) -> float | None:
    value = answer.get(name)
    if value is None:
        return None
    if not is_number(value):
        raise _bad(f"{name} is {value!r}")
    return float(value)


def _bad(what: str) -> MeasurementError:
    return MeasurementError(
        f"/server_info is not what SGLang sends: {what}"[:400],
        culprit="engine",
        fix="check that the URL is an SGLang server (0.5.12 or newer)",
    )
