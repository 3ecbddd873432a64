"""What to launch: one immutable description of a server, and the command and environment that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pytest_specprobe.profiles import Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A server to boot. Two equal specs are the same server, so a boot can be shared by its spec.

    ``drafter`` and ``speculation`` are given together (EAGLE-3) or not at all (the baseline). ``mla`` says that the
    target has multi-head latent attention (the CPU engine wants to know). ``python`` is the interpreter that
    holds SGLang. ``env`` is set in the child on top of the scrubbed environment, as (name, value) pairs.
    """

    model: str
    drafter: Path | None = None
    speculation: Speculation | None = None
    device: Literal["cuda", "cpu"] = "cuda"
    tp: int = 1
    mla: bool = False
    trust_remote_code: bool = False
    server_args: tuple[str, ...] = ()
    python: str = ""
    env: tuple[tuple[str, str], ...] = field(default=())


def command(spec: ServerSpec, *, host: str, port: int) -> tuple[str, ...]:
    """Return the command line of the server; it holds no secret (the API key travels in a private file)."""
    raise NotImplementedError


def environment(spec: ServerSpec, base: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the child's environment, and the sorted names of the variables of ``base`` that were scrubbed."""
    raise NotImplementedError
