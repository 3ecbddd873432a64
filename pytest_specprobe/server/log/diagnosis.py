"""Why a boot failed, told from its log: known causes by their text, unknown ones by their root exception."""

import re
from dataclasses import dataclass

from pytest_specprobe.errors import Culprit
from pytest_specprobe.foreign import cut
from pytest_specprobe.server.log.boot_log import Phase, plain_lines

_EXCEPTION = re.compile(
    r"^\s{0,2}(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|NotFound|OutOfMemory\w*)\b.*"
)
_REPORT = 1 << 20  # characters of a failure's report that are held against the known causes
_STACK = "Traceback (most recent call last):"
_DIRECT = "The above exception was the direct cause"
_DURING = "During handling of the above exception"
# How a parent process reports that a child died: never the root.
_ECHO = re.compile(
    r"scheduler died|EOFError|sigquit|Broken ?Pipe|Initialization failed|ConnectionRefused", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a boot failed: one sentence, whose fault it is, and what to do next."""

    what: str
    culprit: Culprit
    fix: str
    port_taken: bool = False


@dataclass(frozen=True, slots=True)
class _Cause:
    """A known cause: the first to match wins, so the specific come first. ``{1}`` is the pattern's first group."""

    pattern: str
    what: str
    culprit: Culprit
    fix: str
    port_taken: bool = False


# A fault of the file being loaded: the drafter's in phase draft-weights, the target's before.
_WEIGHTS_FIX = "download the checkpoint again (git lfs pull, if it is a clone), and run specprobe inspect on it"

_KNOWN = (
    _Cause(
        r"No module named '?sglang\b|Error while finding module specification for 'sglang",
        "the interpreter holds no SGLang",
        "machine",
        "install SGLang (pip install 'pytest-specprobe[sglang]'), or name its interpreter with --specprobe-python",
    ),
    _Cause(
        r"address already in use|error while attempting to bind on address|EADDRINUSE|"
        r"[Pp]ort \d+ is (?:already )?in use",
        "the port was taken by another process while the server booted",
        "machine",
        "run again; a free port is picked each time",
        port_taken=True,
    ),
    _Cause(
        r"Target model's context_length \((\d+)\) is greater than the derived context_length \((\d+)\)",
        "the drafter's context ({2} tokens) is shorter than the target's ({1})",
        "drafter-config",
        "let specprobe stage the drafter, which patches max_position_embeddings",
    ),
    _Cause(
        r"User-specified context_length \((\d+)\) is greater than the derived context_length \((\d+)\)",
        "--context-length {1} exceeds the target's own {2} tokens",
        "launch-flags",
        "lower --context-length in the target's server_args",
    ),
    _Cause(
        r"does not (?:implement|define|have|expose)[^\n]{0,200}?set_eagle3_layers_to_capture|"
        r"has no attribute 'set_eagle3_layers_to_capture'",
        "this SGLang cannot capture EAGLE-3 hidden states from the target's model class",
        "engine",
        "use an SGLang version that supports EAGLE-3 for this target; the drafter is not at fault",
    ),
    _Cause(
        r"Model architectures \[?['\"]?(\w+)['\"]?\]? (?:are not supported for now|failed to be inspected)|"
        r"['\"](\w+)['\"] is not a registered model in the Transformers library",
        "this SGLang does not know the model class {1}",
        "engine",
        "use an SGLang version that supports it, or correct `architectures` in config.json",
    ),
    _Cause(
        r"model type [`'\"](\w+)[`'\"] but Transformers does not recognize|Unrecognized model in (\S+)",
        "transformers does not know the model type {1}",
        "engine",
        "update transformers with SGLang, or allow the model's own code with trust_remote_code in the profile",
    ),
    _Cause(
        r"requires you to execute the configuration file|trust_remote_code=True",
        "the model brings its own code, which was not allowed to run",
        "launch-flags",
        "read that code, then set trust_remote_code = true in the target's profile",
    ),
    _Cause(
        r"Unknown (?:CUDA|GPU)|CUDA driver version is insufficient|no CUDA-capable device|No CUDA GPUs are available|"
        r"Found no NVIDIA driver|Torch not compiled with CUDA enabled|no accelerator .{0,200}? is available",
        "no usable GPU, or a driver too old for this build of torch",
        "machine",
        "check nvidia-smi and the driver version, or probe with --specprobe-device=cpu where the target allows it",
    ),
    _Cause(
        r"NCCL (?:error|WARN)|ncclUnhandledCudaError|ncclSystemError|ncclInvalidUsage|DistBackendError",
        "NCCL could not connect the GPUs",
        "machine",
        "set NCCL_DEBUG=INFO and read the log; check that all tp GPUs are visible and peers can reach each other",
    ),
    _Cause(
        r"The memory capacity is unbalanced",
        "the GPUs have different amounts of free memory: another process holds one of them",
        "machine",
        "free the GPUs (nvidia-smi shows who holds them)",
    ),
    _Cause(
        r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|Not enough memory\. Please try to increase|"
        r"leave no GPU memory for the KV cache|CUDA error: out of memory|Triton Error \[CUDA\]: out of memory|"
        r"alloc_req_slots runs out of memory",
        "out of GPU memory{phase}",
        "launch-flags",
        "lower --mem-fraction-static (graphs, weights) or raise it (KV cache), or limit --cuda-graph-max-bs-decode, "
        "in the target's server_args; check that nothing else holds the GPUs",
    ),
    _Cause(
        r"triton\.compiler\.errors\.\w+|CompilationError: at \d+:\d+",
        "a Triton kernel of this SGLang does not compile for the shapes of this model",
        "engine",
        "name another --attention-backend or --moe-runner-backend in the server_args, or use another version",
    ),
    _Cause(
        r"Cannot find the config file for (\w+)|[Qq]uantization method .{0,200}? does not match|"
        r"quantization (?:method )?['\"]?(\w+)['\"]? is not supported|Unknown quantization method|"
        r"is not supported for quantization method",
        "the quantisation settings do not fit the checkpoint",
        "launch-flags",
        "an unquantised drafter under a quantised target needs --speculative-draft-model-quantization unquant",
    ),
    _Cause(
        r"Cannot find any model weights with `([^`]*)`",
        "there are no weights in {1}",
        "drafter-file",
        _WEIGHTS_FIX,
    ),
    _Cause(
        r"(?:HeaderTooLarge|InvalidHeader|MetadataIncompleteBuffer|SafetensorError)[^\n]*",
        "a weights file is not readable safetensors",
        "drafter-file",
        _WEIGHTS_FIX,
    ),
    _Cause(
        r"Attempted to load weight \(torch\.Size\((\[[\d, ]*\])\)\) into parameter \(torch\.Size\((\[[\d, ]*\])\)\)",
        "a weight has shape {1} where config.json asks for {2}",
        "drafter-file",
        "compare config.json with the weights: specprobe inspect names the tensor",
    ),
    _Cause(
        r"Repo id must be in the form|is not a local folder and is not a valid model identifier|"
        r"(?:does not appear to have|Can't load) (?:a file named|the configuration of)",
        "there is no model at the place named",
        "target",
        "correct the model path in the target's profile",
    ),
    _Cause(
        r"device-side assert|IndexError: index out of range in self|index \d+ is out of bounds",
        "a token id or a position points outside its table",
        "drafter-file",
        "check the drafter's d2t and max_position_embeddings: specprobe inspect names the fault",
    ),
    _Cause(
        r"No module named '([\w.]+)'",
        "the server needs the Python module {1}, which its environment lacks",
        "machine",
        "install it beside SGLang, in the environment of the server's interpreter",
    ),
    _Cause(
        r"(?:unrecognized arguments?|invalid choice|argument --?[\w-]+:)[^\n]*",
        "SGLang refused the command line: {0}",
        "launch-flags",
        "correct server_args in the target's profile for this SGLang version",
    ),
    _Cause(
        r"No space left on device",
        "the disk is full",
        "machine",
        "free some space (the log, /dev/shm and the compile caches need it)",
    ),
)


def diagnose(
    text: str, *, phase: Phase = "draft-weights", exit_code: int | None = None, exit_signal: int | None = None
) -> Diagnosis:
    """Return why the server that wrote this log did not come up, having reached this phase.

    Only the part of the log that reports a failure is matched, so that a warning of a healthy start is never taken
    for the cause.
    """
    lines = [line for line in plain_lines(text) if "Ignore import error when loading" not in line]
    root = root_exception(text)
    report = "\n".join(lines[_failure_start(lines) :])[:_REPORT]
    # The root exception is asked first: what follows it is usually its consequence.
    for candidate in ([root] if root else []) + [report]:
        for cause in _KNOWN:
            if match := re.search(cause.pattern, candidate, re.IGNORECASE):
                culprit = "target" if cause.culprit == "drafter-file" and phase == "weights" else cause.culprit
                return Diagnosis(_fill(cause.what, match, lines), culprit, cause.fix, cause.port_taken)
    if root:
        return Diagnosis(
            f"the server failed: {root}", "engine", "read the log lines below; the first traceback counts"
        )
    if exit_signal == 9:
        return Diagnosis(
            "the server was killed from outside (SIGKILL)",
            "machine",
            "look for the kernel's OOM killer: dmesg -T | grep -i oom",
        )
    if exit_signal is not None:
        return Diagnosis(f"the server died of signal {exit_signal}", "engine", "read the log lines below")
    if exit_code is not None:
        return Diagnosis(f"the server exited with code {exit_code}", "engine", "read the log lines below")
    # Nobody saw it end: its supervisor, which would have, was killed, and the kernel ended the server with it.
    return Diagnosis(
        "its supervisor was killed from outside, and the server with it",
        "machine",
        "look for the kernel's OOM killer: dmesg -T | grep -i oom",
    )


def says_port_taken(line: str) -> bool:
    """Tell whether a line of a log says that HTTP could not be bound: SGLang lingers for minutes after it."""
    return "error while attempting to bind on address" in line


def root_exception(text: str) -> str | None:
    """Return the exception that started it all: the first traceback's, with its cause; None without a traceback.

    A process that reports another's death comes later, and is passed over if it comes first.
    """
    roots = [chain for chain in _chains(plain_lines(text)) if chain]
    honest = [chain for chain in roots if not _ECHO.search(chain)] or roots
    return honest[0] if honest else None


def _chains(lines: list[str]) -> list[str]:
    chains: list[list[str]] = []
    joined: str | None = None
    in_stack = False
    for line in lines:
        if _STACK in line and "Ignore import error" not in line:
            if joined is None:
                chains.append([])
            in_stack = True
        elif in_stack and (match := _EXCEPTION.match(line)):
            message = match.group().strip()[:400]
            if joined == _DIRECT:
                message = f"{message} (caused by {chains[-1][-1]})"
            chains[-1].append(message)
            in_stack, joined = False, None
        elif line.startswith((_DIRECT, _DURING)):
            joined = _DIRECT if line.startswith(_DIRECT) else _DURING
    return [chain[-1] for chain in chains if chain]


def _failure_start(lines: list[str]) -> int:
    for number, line in enumerate(lines):
        if _STACK in line or "hit an exception" in line or re.search(r"\berror\b", line, re.IGNORECASE):
            return number
    return 0


def _fill(what: str, match: re.Match[str], lines: list[str]) -> str:
    groups = [g for g in match.groups() if g is not None]
    for number, group in enumerate(groups, start=1):
        what = what.replace(f"{{{number}}}", cut(group, 100))
    return what.replace("{0}", match.group()[:300]).replace("{phase}", _memory_phase(lines))


def _memory_phase(lines: list[str]) -> str:
    text = "\n".join(lines)
    if re.search(r"Capture .{0,200}?graph begin|Capturing (?:batches|num tokens)", text):
        return " while capturing CUDA graphs"
    if "Load weight end" in text:
        return " while allocating the KV cache"
    return " while loading weights" if "Load weight begin" in text else ""
