"""The environment of a server: an allowlist of the variables of this process, and what a boot sets on top.

A server gets what it needs to find its interpreter, libraries, caches and devices, and nothing of the job around it:
most variables of a CI job are secrets of something else. ``env_pass`` of the target's profile names more.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_cache_path

from pytest_specprobe.engines import cpu, steps
from pytest_specprobe.secret import Variables
from pytest_specprobe.server.secret_forms import is_secret_name
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.server.variables import forging_variables, isolation

GROUPS: Mapping[str, str] = {
    "user, locale, time zone": "HOME USER LOGNAME LANG LANGUAGE LC_* TZ TZDIR LOCPATH LOCALE_ARCHIVE",
    "programs and libraries": (
        "PATH LD_LIBRARY_PATH LD_PRELOAD GLIBC_TUNABLES VIRTUAL_ENV CONDA_* NIX_* PYENV_* ASDF_* MISE_*"
    ),
    "Python": (
        "PYTHONPATH PYTHONHOME PYTHONNOUSERSITE PYTHONUSERBASE PYTHONUTF8 PYTHONIOENCODING PYTHONHASHSEED "
        "PYTHONMALLOC PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX"
    ),
    "compilers of kernels": (
        "CC CXX CUDAHOSTCXX CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH MAX_JOBS NVCC_* NINJA_* CMAKE_*"
    ),
    "folders, caches, models": (
        "XDG_* HF_* HUGGINGFACE_HUB_CACHE TRANSFORMERS_* MODELSCOPE_* TOKENIZERS_PARALLELISM TIKTOKEN_*"
    ),
    "certificates": "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE",
    "threads and memory": (
        "OMP_* GOMP_* KMP_* MKL_* OPENBLAS_* BLIS_* DNNL_* ONEDNN_* ATEN_* MALLOC_* NUMEXPR_* NUMBA_*"
    ),
    "torch, CUDA, ROCm": (
        "TORCH* PYTORCH_* CUDA_* CUBLAS_* CUBLASLT_* CUDNN_* NVIDIA_* NVTE_* HIP_* HSA_* ROCM_* ROCR_* GPU_* AITER_*"
    ),
    "communication": (
        "NCCL_* RCCL_* GLOO_* UCX_* FI_* IBV_* RDMAV_* MLX5_* NVSHMEM_* MSCCLPP_* MC_* MOONCAKE_* DEEPEP_* DEEP_EP_*"
    ),
    "kernels and SGLang": "TRITON_* FLASHINFER_* TVM_* CUTE_DSL_* DG_* SGLANG_* SGL_* LMCACHE_* RUNAI_STREAMER_*",
}
"""What passes to every server: what it is for, and the names; ``PREFIX_*`` is every name that begins so."""

STORES: Mapping[str, str] = {"s3": "AWS_*", "gs": "GOOGLE_* GCLOUD_* CLOUDSDK_*", "az": "AZURE_*", "redis": "REDIS_*"}
"""What passes, secrets included, where the model lies in a remote store: the scheme of its URL, and the names."""


def _pattern(*names: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", r"\w*") for text in names for name in text.split()))


_ALLOWED = _pattern(*GROUPS.values())
_STORES = {scheme: _pattern(names) for scheme, names in STORES.items()}
_PROXY = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)
_HUB_SECRET = re.compile(r"HF_TOKEN(_PATH)?|HUGGING_FACE_HUB_TOKEN|HUGGINGFACE_TOKEN")
# By exact name only: they open another door, or import code.
_ASKED_FOR = re.compile(r"SGLANG_(GRPC_PORT|HTTP_SERVER_APP_PATH|EXTERNAL_\w*PACKAGE)")
_LOOPBACK = "127.0.0.1,localhost"


def environment(spec: ServerSpec, base: Mapping[str, str]) -> tuple[Variables, tuple[str, ...]]:
    """Return the child's environment, and the sorted names of the variables of ``base`` that do not pass.

    A local target gets no secret and no proxy, a hub id the hub's token and the proxies, a remote store the
    credentials of its own kind. No variable that forges a measurement passes, whatever the profile says.
    """
    kept = _elsewhere(Variables({name: value for name, value in base.items() if _passes(name, spec)}))
    scrubbed = tuple(sorted(set(base) - set(kept)))
    if spec.device == "cpu":
        kept |= cpu.environment(kept)
    elif not any(word.partition("=")[0] == "--nnodes" for word in spec.server_args):
        # The ranks of one machine meet on its loopback, and not on an address that others reach.
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            kept.setdefault(name, "lo")
    if spec.candidates:
        kept |= steps.environment(kept)
    if spec.model_is_local and not spec.trust_remote_code:
        # Everything is there; a hub look-up could only hang a boot on a machine without a network.
        kept.setdefault("HF_HUB_OFFLINE", "1")
    # A boot has a temporary directory of its own; what was compiled is worth keeping.
    for name, folder in (("TORCHINDUCTOR_CACHE_DIR", "torchinductor"), ("HF_MODULES_CACHE", "modules")):
        kept.setdefault(name, str(user_cache_path("specprobe") / folder))
    if any(_PROXY.fullmatch(name) for name in kept):
        # SGLang's own warm-up request goes through the proxies otherwise.
        for name in ("no_proxy", "NO_PROXY"):
            kept[name] = ",".join(p for p in (kept.get(name, ""), _LOOPBACK) if p)
    return kept | isolation(trust_remote_code=spec.trust_remote_code) | {"PYTHONUNBUFFERED": "1"} | dict(
        spec.env
    ), scrubbed


def of_interpreter(base: Mapping[str, str]) -> Variables:
    """Return the environment of an interpreter that is only asked something: what every server gets, no secret."""
    passing = Variables({n: v for n, v in base.items() if _ALLOWED.fullmatch(n) and not is_secret_name(n)})
    return _elsewhere(passing) | isolation(trust_remote_code=False)


def _elsewhere(env: Variables) -> Variables:
    """Return the environment without what puts the working directory on an interpreter's path."""
    # An empty entry is the working directory, and a relative one lies in it: whose files are there is not known.
    entries = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    others = Variables({name: value for name, value in env.items() if name != "PYTHONPATH"})
    return others | ({"PYTHONPATH": os.pathsep.join(entries)} if entries else {})


def _passes(name: str, spec: ServerSpec) -> bool:
    if forging_variables([name]):
        return False
    store = _STORES.get(urlsplit(spec.model).scheme)
    if name in spec.env_pass or (store is not None and store.fullmatch(name)):
        return True
    if _HUB_SECRET.fullmatch(name):
        return not spec.model_is_local and "://" not in spec.model
    if _PROXY.fullmatch(name):
        return not spec.model_is_local
    prefixes = tuple(entry[:-1] for entry in spec.env_pass if entry.endswith("*"))
    allowed = _ALLOWED.fullmatch(name) is not None or name.startswith(prefixes)
    return allowed and not (is_secret_name(name) or _ASKED_FOR.fullmatch(name))
