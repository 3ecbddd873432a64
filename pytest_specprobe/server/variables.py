"""Variables of an environment by what they do: forge a measurement, change its speed, keep foreign code out."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_specprobe.server.secret_forms import is_secret_name

# Variables that change what is measured, or whether it may run at all, without a trace in the answers.
# SGLANG_IS_IN_CI alone lets a server boot past a context check on CI that it fails on a laptop.
_FORGING = re.compile(
    r"(SGLANG|SGL)_(SIMULATE_.*|TEST_.*|DIAG_.*|DSPARK_SIMULATE_.*|IS_IN_CI.*|ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
    r"|FORCE_SHUTDOWN|RUST_SERVER|ENABLE_HEALTH_ENDPOINT_GENERATION)"
)
# Variables that change how fast the same server answers, and among them those that only say where something is.
_SPEED = re.compile(
    r"^((OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|DNNL|ONEDNN|ATEN|MALLOC|TORCH\w*|PYTORCH|CUDA|CUBLAS|CUBLASLT|CUDNN|NVTE|NCCL"
    r"|HIP|HSA|RCCL|AITER|TRITON|FLASHINFER|SGLANG|SGL)_\w+|LD_PRELOAD|GLIBC_TUNABLES|NVIDIA_TF32_OVERRIDE)$"
)
_PLACE = re.compile(
    r"CACHE|LOG|DEBUG|_(DIR|DIRS|DIRECTORY|PATH|HOME|ROOT|FILE|URL|HOST|IP|PORT|ID|IFNAME|VERSION|VISIBLE_DEVICES)$"
)


def isolation(*, trust_remote_code: bool) -> dict[str, str]:
    """Return what keeps an interpreter from running what it finds: in its working directory, in a checkpoint.

    SGLang follows the ``auto_map`` of a class that it does not know, and of a model that transformers runs, without a
    look at ``--trust-remote-code``. Where there is no folder for such code it cannot be loaded.
    """
    # Read by Python 3.11 and newer.
    return {"PYTHONSAFEPATH": "1"} | ({} if trust_remote_code else {"HF_MODULES_CACHE": os.devnull})


def unusable(env_pass: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the ``env_pass`` of a profile."""
    for name in env_pass:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name):
            yield f"env_pass may not hold {name!r}: it names variables, NAME or PREFIX_*, and no values"
        elif _FORGING.fullmatch(name):
            yield f"env_pass may not hold {name}, which forges a measurement"


def speed_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a server's environment that change how fast it is, sorted by name; no secret is one."""
    return {
        name: value
        for name, value in sorted(env.items())
        if _SPEED.match(name) and not _PLACE.search(name) and not is_secret_name(name)
    }


def forging_variables(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that would simulate acceptance or lift SGLang's own checks."""
    return tuple(sorted(name for name in names if _FORGING.fullmatch(name)))
