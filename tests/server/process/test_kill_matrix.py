"""Whatever ends a pytest run that owns a server, at whatever step: no process, port, lock, key or half-made file."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import kill
from proofs import faults
from pytest_specprobe.server.child_environment import environment
from pytest_specprobe.server.spec import ServerSpec
from tests.support.kills import ROWS, TAG, Outcome, Row, run

AT_ONCE = 6
# Real SGLang: at its weakest (its own children import for seconds and are not yet tied to it), and serving.
REAL = (
    Row(step="boot", how="SIGKILL", delay_s=9),
    Row(step="boot", how="SIGKILL of supervisor and pytest", delay_s=12),
    Row(step="probe", how="SIGKILL"),
)


def table(outcomes: list[Outcome]) -> str:
    lines = ["| fault | step | exit | left |", "|---|---|---|---|"]
    lines += [f"| {o.row.how} | {o.row.step} | {o.exit_code} | {', '.join(o.left) or 'nothing'} |" for o in outcomes]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("tag", [TAG, kill._TAG, faults.TAG])
def test_the_tag_of_a_trial_reaches_the_servers_that_it_looks_for(tag: str) -> None:
    """What does not pass to a server would leave the trials blind for what is left of one."""
    assert environment(ServerSpec(model="m"), {tag: "1"})[0][tag] == "1"


@pytest.mark.timeout(300)
def test_every_fault_at_every_step_leaves_nothing(tmp_path: Path) -> None:
    def one(numbered: tuple[int, Row]) -> Outcome:
        root = tmp_path / str(numbered[0])
        root.mkdir()
        return run(numbered[1], root)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(one, enumerate(ROWS)))
    assert len(outcomes) >= 40
    if "SPECPROBE_FAULT_MATRIX" in os.environ:
        Path(os.environ["SPECPROBE_FAULT_MATRIX"]).write_text(table(outcomes))
    assert [f"{o.row}: {o.left}" for o in outcomes if o.left] == []
    codes = {str(o.row): o.exit_code for o in outcomes}
    assert codes["nothing at probe"] == 0
    assert codes["exception in teardown at teardown"] == 1
    assert codes["os._exit in a test at probe"] == 3
    assert codes["SIGINT at probe"] == 2


@pytest.mark.timeout(400)
def test_real_sglang_is_ended_with_its_children(tiny_pair: Any, tmp_path: Path, needs_sglang: None) -> None:
    def one(row: Row) -> Outcome:
        root = tmp_path / f"{REAL.index(row)}"
        root.mkdir()
        shutil.copytree(tiny_pair.drafter, root / "drafter")
        return run(row, root, spec={"model": str(tiny_pair.target), "device": "cpu"})

    with ThreadPoolExecutor(len(REAL)) as pool:
        outcomes = list(pool.map(one, REAL))
    assert [f"{o.row}: {o.left}" for o in outcomes if o.left] == []
