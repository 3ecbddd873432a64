"""A number of which no ratio can be made costs its line of the history, wherever it came from."""

from pathlib import Path

import numpy as np
import pytest

from pytest_specprobe.cli import main
from pytest_specprobe.report.store import history, journal
from tests.support.simulated_history import World


@pytest.mark.parametrize("seconds", [1e-320, -1e-300, 1e300, float("1e-19")])
def test_a_number_too_small_or_large_for_a_ratio_costs_its_line(tmp_path: Path, seconds: float) -> None:
    rng, path = np.random.default_rng(3), tmp_path / history.NAME
    for at in range(3):
        line = World(prompts=4).run(rng, at).to_json()
        if at == 1:
            line["rows"][0][line["columns"].index("decode_s")] = seconds
        journal.append(path, line)
    found = history.read(tmp_path)
    assert len(found.runs) == 2
    assert len(found.skipped) == 1
    assert main(["history", str(tmp_path)]) == 0
