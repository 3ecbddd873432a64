"""What makes two runs comparable.

Invariant: runs with different keys are never compared unless a person names the part that may differ.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from pytest_specprobe.report.model.base import Model
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.model.servers import Machine, ServerReport
from pytest_specprobe.server.http.client import is_loopback

# Counts up whenever the same run would give other numbers, or a key holds more, so that old numbers are not held
# against new ones. 2: the rendered prompts, the environment, and where an attached server is.
METHOD = 2
DEFAULT_NEW_TOKENS = 256
# Settings that differ between any two boots, or say who and where and not how.
_NOT_FLAGS = frozenset({
    "version", "status", "host", "port", "nccl_port", "random_seed", "launch_command", "startup_time",
    "internal_states", "api_key", "admin_api_key", "served_model_name", "weight_version", "model_path",
    "tokenizer_path", "speculative_draft_model_path", "last_gen_throughput", "memory_usage",
    "avg_spec_accept_length", "max_total_num_tokens", "max_req_input_len", "dist_init_addr",
    "forward_pass_metrics_ipc_name", "crash_dump_folder", "file_storage_path", "log_requests_target",
})  # fmt: skip
_LONGEST = 60
# A part of a report that was written before the part was: equal to itself, and to nothing that is known.
_UNRECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class Key:
    """Everything that must be the same for two runs to be compared, by name.

    ``engine`` is SGLang's version, ``hardware`` the GPUs (or the CPU and its cores), ``target``, ``drafter`` and
    ``workload`` are digests, ``rendered`` that of the prompts' token ids (or, where the template writes the date
    into them, of template and tokenizer); ``flags`` the resolved server settings that are set, ``environment`` the
    server's variables that change its speed (None for a server of which only the URL is known).
    """

    parts: Mapping[str, JsonValue]

    @property
    def id(self) -> str:
        """Return 12 hex digits that name the key."""
        return hashlib.sha256(json.dumps(self.parts, sort_keys=True).encode()).hexdigest()[:12]

    def without(self, *names: str) -> "Key":
        """Return the key without the parts of these names."""
        return Key({name: part for name, part in self.parts.items() if name not in names})

    def differences(self, other: "Key") -> dict[str, tuple[JsonValue, JsonValue]]:
        """Return the parts that differ: name -> (this one's, the other's).

        Flags and variables one by one (``flags.NAME``, ``environment.NAME``).
        """
        one, two = _flat(self.parts), _flat(other.parts)
        return {k: (one.get(k), two.get(k)) for k in sorted({*one, *two}) if one.get(k) != two.get(k)}


def key_of(report: Report, entry: DrafterReport) -> Key | None:
    """Return the key of one drafter's run; None if something in it is not known, so that nothing may be compared."""
    server, workload, throughput, digests = entry.server, entry.workload, entry.throughput, entry.digests
    if not (server and workload and server.version and server.flags and digests.drafter and digests.target):
        return None
    where, rendered = _where(report.machine, server), _recorded(workload, "rendered")
    if where is None or rendered is None:
        return None
    speculation = entry.speculation
    return Key({
        "method": METHOD,
        "engine": f"SGLang {server.version}",
        "device": server.device,
        "hardware": where,
        "environment": _recorded(server, "environment"),
        "target": digests.target,
        "drafter": digests.drafter,
        "workload": prompts_part(
            workload.digest,
            thinking=workload.thinking,
            max_new_tokens=DEFAULT_NEW_TOKENS if workload.max_new_tokens is None else workload.max_new_tokens,
        ),
        "rendered": workload.undated or rendered,
        "speculation": f"{speculation.num_steps}/{speculation.eagle_topk}/{speculation.num_draft_tokens}",
        "concurrency": throughput.concurrency if throughput else None,
        "flags": _flags(server.flags),
    })  # fmt: skip


def _recorded(part: Model, name: str) -> JsonValue:
    """Return a field of a report; one that it was written without is not null."""
    value: JsonValue = getattr(part, name)
    return value if name in part.model_fields_set else _UNRECORDED


def prompts_part(digest: str, *, thinking: bool | None, max_new_tokens: int = DEFAULT_NEW_TOKENS) -> str:
    """Return the part of a key that tells the work: the prompts, and what differs from how they are usually asked."""
    told = "" if thinking is None else f" thinking {'on' if thinking else 'off'}"
    limit = "" if max_new_tokens == DEFAULT_NEW_TOKENS else f" up to {max_new_tokens} tokens"
    return digest + told + limit


def _where(machine: Machine, server: ServerReport) -> str | None:
    """Return what the server ran on; None where that is not known.

    Of an attached server that nothing vouches for, the URL's host must do: the same host is the same hardware until
    its owner says otherwise. A loopback address is another server on every machine, so this machine is named too.
    """
    device = server.local_device if "local_device" in server.model_fields_set else server.device
    if device in {"cuda", "cpu"}:
        # of an attached server too: a record of this machine vouches for it
        known = _recorded(server, "environment") is not None
        return hardware(machine, device=device) if known else None
    if server.host is None:
        return None
    here = f" of {hardware(machine, device='cpu')}; {hardware(machine, device='cuda')}"
    return f"attached at {server.host}{here if is_loopback(server.host) else ''}"


def hardware(machine: Machine, *, device: str) -> str:
    """Return what a server on this machine runs on, as text; ``device`` is cuda or cpu."""
    if device == "cpu":
        return f"{machine.cores} cores, {machine.cpu}"
    names = machine.gpus
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "no GPU seen"


def _flags(settings: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    # null, false, zero and empty all mean that a setting is off; SGLang's versions differ in which they say
    kept = {k: v for k, v in settings.items() if v and k not in _NOT_FLAGS and not k.startswith("_")}
    return {name: _short(value) for name, value in sorted(kept.items())}


def _short(value: JsonValue) -> JsonValue:
    """Keep records small: a long value is compared by its digest."""
    text = json.dumps(value, sort_keys=True)
    return value if len(text) <= _LONGEST else f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _flat(parts: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    flat: dict[str, JsonValue] = {}
    for name, part in parts.items():
        flat |= {f"{name}.{key}": value for key, value in part.items()} if isinstance(part, Mapping) else {name: part}
    return flat
