"""Probes servers with a planted fault beside a plain one, on a GPU: ``python -m benchmarks.gpu.planted OUT``.

Each is probed as somebody else's server, so that its environment cannot be seen. Leaves planted.json in OUT, and a
folder per row; the exit code is 0 if every row ended as it must. The last row has no fault and must be valid.
"""

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.profiles import Speculation
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.attach import API_KEY_VARIABLE
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures"
TARGET, DRAFTER, NAME = "mini_k25", "aq_k2_mini", "aq_k2_mini"
CHAIN = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
BOOT_S = 300.0


@dataclass(frozen=True, slots=True)
class Row:
    """A server to probe; ``finding`` is the error that must be seen, None: no error at all may be."""

    name: str
    finding: str | None
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


# The drafter is not staged here, and its config ends at fewer positions than the target's.
UNSTAGED = (("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1"),)
SIMULATED = (("SGLANG_SIMULATE_ACC_LEN", "2.5"), ("SGLANG_SIMULATE_ACC_TOKEN_MODE", "real-draft-token"))
ROWS = (
    Row("simulated acceptance", "measure.not-greedy", env=SIMULATED),
    Row("lossy threshold", "proof.lossy-threshold", args=("--speculative-accept-threshold-single", "0.5")),
    Row("no fault", None),
)


def main() -> int:
    """Boot the plain server once and one server per row."""
    out = Path(sys.argv[1])
    key = Secret.random()
    with served(out / "baseline", key) as baseline:
        rows = [probed(row, out / row.name.replace(" ", "-"), key, baseline) for row in ROWS]
    (out / "planted.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["as_expected"] for row in rows) else 1


def served(folder: Path, key: Secret, row: Row | None = None) -> OwnedServer:
    """Boot the target, with a drafter where a row is given."""
    folder.mkdir(parents=True, exist_ok=True)
    profiles = tomllib.loads((HERE / "specprobe.toml").read_text(encoding="utf-8"))
    spec = ServerSpec(
        model=str(FIXTURES / TARGET),
        drafter=FIXTURES / DRAFTER if row else None,
        speculation=CHAIN if row else None,
        mla=True,
        server_args=(*profiles["targets"][TARGET]["server_args"], *(row.args if row else ())),
        env=(*UNSTAGED, *(row.env if row else ())),
    )
    return boot(spec, log_path=folder / "server.log", timeout_s=BOOT_S, api_key=key)


def probed(row: Row, folder: Path, key: Secret, baseline: OwnedServer) -> dict[str, object]:
    """Probe one server and return what was seen of it."""
    with served(folder, key, row) as server:
        words = (
            f"--specprobe-drafter={NAME}",
            f"--specprobe-server={server.url}",
            f"--specprobe-baseline={baseline.url}",
            f"--specprobe-report={folder / 'report'}",
            "--rootdir=.",
        )
        with (folder / "log.txt").open("wb") as log:
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                # another state folder: without their ownership records these are somebody else's servers
                env={
                    **os.environ,
                    API_KEY_VARIABLE: key.reveal(),
                    "SPECPROBE_STATE_DIR": str(folder.resolve() / "state"),
                },
                timeout=300,
                check=False,
            )
    report = json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))
    (entry,) = report["drafters"]
    errors = {c["id"]: c["seen"] for c in entry["checks"] if c["status"] == "fail" and c["severity"] == "error"}
    return {
        "row": row.name,
        "exit": run.returncode,
        "verdict": entry["verdict"],
        "errors": errors,
        "odd_tokens": (entry["losslessness"] or {}).get("odd_tokens"),
        "as_expected": row.finding in errors if row.finding else not errors,
    }


if __name__ == "__main__":
    sys.exit(main())
