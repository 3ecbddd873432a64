"""The founding case at its true size, rehearsed without a GPU: what plan, static gate and staging say and take.

Run: ``python -m benchmarks.founding_scale``. Writes sparse checkpoints of Kimi-K2's shapes under the temporary
directory (the target once in bf16, once with its experts in 4 bits) and asks the product about the catalog's
``aq_k2`` on them. Prints the plan's lines and seconds; docs/kimi-k2.5.md quotes them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

from pytest_specprobe.checkpoint.inspect import inspect
from pytest_specprobe.staging import stage
from tests.support.full_scale import kimi_k2

PROFILE = """
[targets.kimi_k25]
model = "{target}"

[drafters.aq_k2]
source = "{drafter}"
"""
_SHOWN = ("speculation", "baseline", "boots", "time", "GPU-minutes", "disk", "GPU memory", "server")


def main() -> None:
    """Write, ask, print."""
    with tempfile.TemporaryDirectory(prefix="specprobe-founding-") as folder:
        for packed in (False, True):
            root = Path(folder) / ("packed" if packed else "bf16")
            drafter, target = kimi_k2(root, packed=packed)
            (root / "specprobe.toml").write_text(PROFILE.format(target=target, drafter=drafter))
            told = subprocess.run(
                [sys.executable, "-m", "pytest", "--specprobe-drafter=aq_k2", "--specprobe-plan", "--rootdir=."],
                cwd=root,
                capture_output=True,
                text=True,
                check=True,
            )
            sys.stdout.write(f"experts in {'4 bits' if packed else 'bf16'}\n")
            for line in told.stdout.splitlines():
                if line.strip().startswith(_SHOWN):
                    sys.stdout.write(line.replace(str(root), "...") + "\n")
            start = perf_counter()
            findings = inspect(drafter, target=target)
            failed = [f.id for f in findings if f.status == "fail"]
            sys.stdout.write(
                f"  static gate   {perf_counter() - start:.1f} s, {len(findings)} checks, not passing: {failed}\n"
            )
            start = perf_counter()
            staged = stage(drafter, cache=root / "cache", target_positions=262_144)
            sys.stdout.write(f"  staging       {perf_counter() - start:.1f} s (first time: every file is hashed)\n")
            del staged


if __name__ == "__main__":
    main()
