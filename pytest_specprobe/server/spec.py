"""What to launch: one immutable description of a server, and the command and environment that follow from it."""

import getpass
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_specprobe.engines import cpu, steps
from pytest_specprobe.errors import ProfileError
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.secret import Variables
from pytest_specprobe.server import flags
from pytest_specprobe.server.redaction import is_secret_name

# SGLang adds to its running totals and writes a log line every so many decode rounds. 1 loses no round but costs
# every round a formatted line, which weighs on the baseline and on speculation differently; the default of 40
# loses up to 39 rounds of each pass.
DECODE_LOG_INTERVAL = 10

# Variables that change what is measured, or whether it may run at all, without a trace in the answers.
# SGLANG_IS_IN_CI alone lets a server boot past a context check on CI that it fails on a laptop.
_FORGING = re.compile(
    r"^(SGLANG|SGL)_(SIMULATE_.*|TEST_.*|DIAG_.*|DSPARK_SIMULATE_.*|IS_IN_CI.*|ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
    r"|FORCE_SHUTDOWN|RUST_SERVER|ENABLE_HEALTH_ENDPOINT_GENERATION)$"
)
# Variables of the test run itself.
_HARNESS = re.compile(r"^(PYTEST_.*|PYTHONWARNINGS|PYTHONSTARTUP|PYTHONFAULTHANDLER|COV_CORE_.*|COVERAGE_.*)$")
_PROXY = re.compile(r"^(https?|ftp|all|no)_proxy$", re.IGNORECASE)
_HUB_SECRET = re.compile(r"^(HF_TOKEN|HUGGING_FACE_HUB_TOKEN|HUGGINGFACE_TOKEN)$")
_LOOPBACK = "127.0.0.1,localhost"
# Variables that change how fast the same server answers, and among them those that only say where something is.
_SPEED = re.compile(
    r"^((OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|DNNL|ONEDNN|ATEN|MALLOC|TORCH\w*|PYTORCH|CUDA|CUBLAS|CUBLASLT|CUDNN|NVTE|NCCL"
    r"|HIP|HSA|RCCL|AITER|TRITON|FLASHINFER|SGLANG|SGL)_\w+|LD_PRELOAD|GLIBC_TUNABLES|NVIDIA_TF32_OVERRIDE)$"
)
_PLACE = re.compile(
    r"CACHE|LOG|DEBUG|_(DIR|DIRS|DIRECTORY|PATH|HOME|ROOT|FILE|URL|HOST|IP|PORT|ID|IFNAME|VERSION|VISIBLE_DEVICES)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A server to boot. Two equal specs are the same server, so a boot can be shared by its spec.

    ``drafter`` and ``speculation`` are given together (EAGLE-3) or not at all (the baseline). ``mla`` says that the
    target has multi-head latent attention (the CPU engine wants to know). ``python`` is the interpreter that
    holds SGLang. ``env`` is set in the child on top of the scrubbed environment, as (name, value) pairs.
    ``candidates`` are the step counts that the server can be pinned to while it runs (``server.pinned``); none: it
    keeps the one of ``speculation``.

    :raises ProfileError: if ``server_args`` holds what it may not (``server.flags``), half a speculation is given, or
        the candidates are not those of a chain that boots on one of them.
    """

    model: str
    drafter: Path | None = None
    speculation: Speculation | None = None
    device: Literal["cuda", "cpu"] = "cuda"
    tp: int = 1
    mla: bool = False
    trust_remote_code: bool = False
    server_args: tuple[str, ...] = ()
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

    The first machine is this one; it boots rank 0 and alone serves HTTP. The last of two equal flags counts.
    """
    nodes = [int(value) for value in values_of(spec.server_args, "--nnodes") if value.isdigit()]
    words = command(spec, host="127.0.0.1", port=30000)
    return tuple((*words, "--node-rank", str(rank)) for rank in range(1, nodes[-1] if nodes else 1))


def environment(spec: ServerSpec, base: Mapping[str, str]) -> tuple[Variables, tuple[str, ...]]:
    """Return the child's environment, and the sorted names of the variables of ``base`` that were scrubbed.

    Scrubbed are variables that forge a measurement, those of the test run itself, and secrets and proxies that the
    child does not need: a local target needs none, a hub id keeps the hub's token and the proxies.
    """
    kept = Variables({name: value for name, value in base.items() if not _scrubbed(name, spec)})
    scrubbed = tuple(sorted(set(base) - set(kept)))
    if spec.device == "cpu":
        kept |= cpu.environment(kept)
    if spec.candidates:
        kept |= steps.environment(kept)
    if spec.model_is_local and not spec.trust_remote_code:
        # Everything is there; a hub look-up could only hang a boot on a machine without a network.
        kept.setdefault("HF_HUB_OFFLINE", "1")
    # A boot has a temporary directory of its own; what was compiled is worth keeping.
    temporary = Path(tempfile.gettempdir())
    kept.setdefault("TORCHINDUCTOR_CACHE_DIR", str(temporary / f"torchinductor_{getpass.getuser()}"))
    if any(_PROXY.match(name) for name in kept):
        # SGLang's own warm-up request goes through the proxies otherwise.
        for name in ("no_proxy", "NO_PROXY"):
            kept[name] = ",".join(p for p in (kept.get(name, ""), _LOOPBACK) if p)
    kept["PYTHONUNBUFFERED"] = "1"
    return kept | dict(spec.env), scrubbed


def speed_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a server's environment that change how fast it is, sorted by name; no secret is one."""
    return {
        name: value
        for name, value in sorted(env.items())
        if _SPEED.match(name) and not _PLACE.search(name) and not is_secret_name(name)
    }


def values_of(args: Sequence[str], *flags: str) -> tuple[str, ...]:
    """Return what a command line gives to any of these flags, as ``--flag value`` or ``--flag=value``, in order."""
    found = []
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag in flags:
            found.append(value if equals else "".join(args[at + 1 : at + 2]))
    return tuple(found)


def forging_variables(names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that would simulate acceptance or lift SGLang's own checks."""
    return tuple(sorted(name for name in names if _FORGING.match(name)))


def _scrubbed(name: str, spec: ServerSpec) -> bool:
    if _FORGING.match(name) or _HARNESS.match(name):
        return True
    if _PROXY.match(name):
        return spec.model_is_local
    if is_secret_name(name):
        remote_store = "://" in spec.model
        return not (remote_store or (_HUB_SECRET.match(name) and not spec.model_is_local))
    return False
