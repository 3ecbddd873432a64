"""Folders of code that is run: compiled kernels, modules of checkpoints. They must be the user's alone."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from pytest_specprobe.errors import ServerError

VARIABLES = (
    "HF_MODULES_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_HOME",
    "TRITON_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "SGLANG_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "DG_JIT_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
    "CUTE_DSL_CACHE_DIR",
    "NUMBA_CACHE_DIR",
    "PYTHONPYCACHEPREFIX",
    "CUDA_CACHE_PATH",
)
"""The variables of a server that name such a folder."""


def require_own(env: Mapping[str, str]) -> None:
    """Make each such folder of a server's environment where it is missing (0700), and look whose it is.

    The user's own or root's, and writable by no other; a link counts only where it is theirs, and so is its end.

    :raises ServerError: naming every folder that is not.
    """
    named = {name: env[name] for name in VARIABLES if env.get(name) and env[name] != os.devnull}
    wrong = [f"{name}: {fault}" for name, value in named.items() if (fault := _fault(Path(value)))]
    if wrong:
        raise ServerError(
            "the server would run what another user may have put into a folder of code: " + "; ".join(wrong),
            culprit="machine",
            fix="remove the folder, or make it yours alone (chmod 700), or name another with that variable",
        )


def _fault(path: Path) -> str | None:
    if not path.is_absolute():
        return f"{path} is not absolute (where it begins with ~, set HOME)"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        looks = [path.lstat(), path.stat()]
    except OSError as error:
        return f"{path} cannot be used: {error.strerror}"
    for look in looks:
        if look.st_uid not in (os.geteuid(), 0):
            return f"{path} belongs to user {look.st_uid}"
    if looks[1].st_mode & 0o022:
        return f"{path} is writable by others (mode {stat.S_IMODE(looks[1].st_mode):o})"
    return None
