"""What to launch: one immutable description of a server, and the command that follows from it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_specprobe.engines import cpu
from pytest_specprobe.errors import ProfileError
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server import flags, variables

# SGLang adds to its running totals and writes a log line every so many decode rounds. 1 loses no round but costs
# every round a formatted line, which weighs on the baseline and on speculation differently; the default of 40
# loses up to 39 rounds of each pass.
DECODE_LOG_INTERVAL = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A server to boot. Two equal specs are the same server, so a boot can be shared by its spec.

    ``drafter`` and ``speculation`` are given together (EAGLE-3) or not at all (the baseline). ``mla`` says that the
    target has multi-head latent attention (the CPU engine wants to know). ``python`` is the interpreter that
    holds SGLang. ``env_pass`` names variables of this process that pass to the child beside those that every server
    gets (``child_environment``); ``env`` is set in the child on top, as (name, value) pairs.
    ``candidates`` are the step counts that the server can be pinned to while it runs (``server.pinned``); none: it
    keeps the one of ``speculation``.

    :raises ProfileError: if ``server_args`` or ``env_pass`` holds what it may not, half a speculation is
        given, or the candidates are not those of a chain that boots on one of them.
    """

    model: str
    drafter: Path | None = None
    speculation: Speculation | None = None
    device: Literal["cuda", "cpu"] = "cuda"
    tp: int = 1
    mla: bool = False
    trust_remote_code: bool = False
    server_args: tuple[str, ...] = ()
    env_pass: tuple[str, ...] = ()
    python: str = sys.executable
    env: tuple[tuple[str, str], ...] = ()
    candidates: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        problems = []
        if (self.drafter is None) != (self.speculation is None):
            problems.append("a drafter and its speculation settings go together: give both or neither")
        own = self.speculation
        if self.candidates and (own is None or own.eagle_topk != 1 or own.num_steps not in self.candidates):
            problems.append(
                f"step counts {self.candidates} need a chain (topk 1) that boots on one of them, not {own}"
            )
        problems += flags.problems(self.server_args, trust_remote_code=self.trust_remote_code)
        problems += variables.unusable(self.env_pass)
        if problems:
            raise ProfileError(tuple(problems), fix="correct the profile; README.md lists the keys")

    @property
    def model_is_local(self) -> bool:
        """Whether the target is a directory of this machine, so that nothing is fetched at boot."""
        return Path(self.model).is_dir()


def command(spec: ServerSpec, *, host: str, port: int) -> tuple[str, ...]:
    """Return the command line of the server, to be run without a shell.

    It holds no secret: command lines are readable for every user of a machine, so the API key travels in a private
    ``--config`` file that the boot adds, as it adds the file of the ``candidates``. ``server_args`` come last, so a
    profile can overrule the settings here.
    """
    words = [
        *(spec.python, "-m", "sglang.launch_server"),
        *("--model-path", spec.model),
        *("--host", host),
        *("--port", str(port)),
        *("--tp-size", str(spec.tp)),
        *("--random-seed", "1"),
        *("--decode-log-interval", str(DECODE_LOG_INTERVAL)),
        # A prefix hit leaves draft KV incomplete and makes the order of prompts matter.
        "--disable-radix-cache",
    ]
    if spec.trust_remote_code:
        words.append("--trust-remote-code")
    if spec.drafter is not None and spec.speculation is not None:
        # All of them, always: SGLang fills in what is left out by rules of its own.
        words += [
            *("--speculative-algorithm", "EAGLE3"),
            *("--speculative-draft-model-path", str(spec.drafter)),
            *("--speculative-num-steps", str(spec.speculation.num_steps)),
            *("--speculative-eagle-topk", str(spec.speculation.eagle_topk)),
            *("--speculative-num-draft-tokens", str(spec.speculation.num_draft_tokens)),
        ]
    if spec.candidates:
        words.append("--speculative-adaptive")
    if spec.device == "cpu":
        words += cpu.server_args(speculative=spec.drafter is not None, mla=spec.mla)
    else:
        words += ["--device", spec.device]
    return (*words, *spec.server_args)


def worker_commands(spec: ServerSpec) -> tuple[tuple[str, ...], ...]:
    """Return what to start on the other machines of a server over ``--nnodes``, in order of rank.

    As the first one they import nothing from the folder that they are started in, nor from a checkpoint untrusted.

    The first machine is this one; it boots rank 0 and alone serves HTTP. The last of two equal flags counts.
    """
    nodes = [int(value) for value in values_of(spec.server_args, "--nnodes") if value.isdigit()]
    words = command(spec, host="127.0.0.1", port=30000)
    isolating = variables.isolation(trust_remote_code=spec.trust_remote_code)
    isolated = ("env", *(f"{name}={value}" for name, value in isolating.items()))
    return tuple((*isolated, *words, "--node-rank", str(rank)) for rank in range(1, nodes[-1] if nodes else 1))


def values_of(args: Sequence[str], *flags: str) -> tuple[str, ...]:
    """Return what a command line gives to any of these flags, as ``--flag value`` or ``--flag=value``, in order."""
    found = []
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag in flags:
            found.append(value if equals else "".join(args[at + 1 : at + 2]))
    return tuple(found)
