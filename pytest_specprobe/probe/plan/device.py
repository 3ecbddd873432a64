"""Where owned servers run: which device, which interpreter, which SGLang."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version

from pytest_specprobe.engines.cpu import SGLANG_VERSION
from pytest_specprobe.reading import Bounds, Unreadable, parse_json
from pytest_specprobe.server.child_environment import of_interpreter
from pytest_specprobe.server.gpu.nvidia_smi import Gpu
from pytest_specprobe.settings import Device

OLDEST_CUDA = Version("0.5.12")
_OPTION = "--specprobe-python"
_ASK_VERSIONS = """
import importlib.metadata as m, json
print(json.dumps({d.metadata["Name"]: d.version for name in ("sglang", "torch") for d in m.distributions(name=name)}))
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """The interpreter that holds SGLang, its version, and its torch's; None where there is none.

    ``fault`` says why the interpreter itself cannot be run, where it cannot.
    """

    python: Path
    version: str | None
    torch: str | None = None
    fault: str | None = None

    def problem(self, device: Literal["cuda", "cpu"]) -> str | None:
        """Say why this interpreter cannot serve on ``device``, and what to type; None if it can."""
        if self.fault is not None:
            return f"{self.python} cannot be run: {self.fault}; name the interpreter that holds SGLang with {_OPTION}"
        install = f"{self.python} -m pip install 'sglang=={SGLANG_VERSION}'"
        if self.version is None:
            return f"SGLang is not installed in {self.python}: {install}, or {_OPTION} PATH"
        if device == "cpu" and self.version.partition("+")[0] != SGLANG_VERSION:
            return f"the CPU engine runs SGLang {SGLANG_VERSION} only, found {self.version}: {install}"
        if device == "cuda" and not _at_least(self.version, OLDEST_CUDA):
            return f"SGLang {self.version} is too old or unknown, {OLDEST_CUDA} or newer is needed: {install}"
        return None


def _at_least(version: str, oldest: Version) -> bool:
    try:
        return Version(version) >= oldest
    except InvalidVersion:
        return False


def engine(python: Path | None) -> Engine:
    """Ask an interpreter (default: this one) for its SGLang's and torch's versions, by metadata alone."""
    path = python or Path(sys.executable)
    try:
        with tempfile.TemporaryDirectory(prefix="specprobe-ask-") as nowhere:
            # What lies in the folder that pytest was started in is neither imported nor taken for a distribution.
            run = subprocess.run(
                [str(path.absolute()), "-c", _ASK_VERSIONS],
                cwd=nowhere,
                env=of_interpreter(os.environ),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=60,
                check=False,
            )
    except (OSError, subprocess.SubprocessError) as error:
        return Engine(path, None, fault=getattr(error, "strerror", None) or str(error))
    try:
        found = {name: str(version) for name, version in parse_json(run.stdout, Bounds(size=65536, depth=2)).items()}
    except (Unreadable, AttributeError):
        found = {}
    return Engine(path, found.get("sglang"), found.get("torch"))


@dataclass(frozen=True, slots=True)
class NoDevice:
    """Why there is no device to serve on."""

    reason: str


def choose(
    asked: Device, *, allowed: Sequence[Literal["cuda", "cpu"]], tp: int, found: Sequence[Gpu]
) -> Literal["cuda", "cpu"] | NoDevice:
    """Return the device to serve on, or why there is none.

    ``auto`` takes GPUs where there are enough of them, and a CPU only for a target whose profile says that it
    fits one: a big model on a CPU would look like a hang.
    """
    enough = len(found) >= tp
    if asked == "cpu":
        if "cpu" in allowed:
            return "cpu"
        return NoDevice("this target's profile does not list cpu under devices")
    if "cuda" in allowed and enough:
        return "cuda"
    if asked == "auto" and "cpu" in allowed:
        return "cpu"
    return NoDevice(f"{tp} GPU{'s' if tp > 1 else ''} needed, {len(found)} found (nvidia-smi)")
