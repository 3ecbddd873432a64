"""The builders: corpus rules, offline acceptance, and the whole command at toy size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fixtures.build.corpus import build_corpus

ROOT = Path(__file__).parents[2]


def test_corpus_is_stable_distinct_and_split_by_unit() -> None:
    turns = build_corpus(8)
    assert turns == build_corpus(8)
    assert len({turn.prompt for turn in turns}) == len(turns)
    assert {turn.domain for turn in turns} == {"code", "docs"}
    assert {turn.held_out for turn in turns} == {True, False}
    assert all(70 <= len(turn.answer) <= 400 and turn.answer.isascii() for turn in turns)


def test_rounds_are_walked_as_the_server_walks_them() -> None:
    acceptance = pytest.importorskip("fixtures.build.acceptance")
    answer = acceptance.Answer(workload="code", prompt=(1, 2, 3), ids=tuple(range(10)), tokens=7)
    # Token 0 of the answer comes from prefill; lengths[t] drafts match once token t + 1 is the newest known.
    lengths = [9, 9, 2, 9, 9, 0, 2, 9, 9]
    walked = acceptance._walk(answer, lengths, steps=2)
    assert walked.histogram == (1, 0, 2)
    assert (walked.rounds, walked.drafts) == (3, 4)
    assert acceptance.accept_length([walked]) == pytest.approx(1 + 4 / 3)
    assert acceptance.first_position([walked]) == pytest.approx(2 / 3)


def test_resamples_keep_the_size_of_every_workload() -> None:
    acceptance = pytest.importorskip("fixtures.build.acceptance")
    weights = acceptance.resamples(["code", "docs", "code", "docs", "docs"], draws=50, seed=1)
    assert np.array_equal(weights[:, [0, 2]].sum(1), [2] * 50)
    assert np.array_equal(weights[:, [1, 3, 4]].sum(1), [3] * 50)
    assert len(np.unique(weights, axis=0)) > 10


def test_unrolling_equals_a_chain_of_drafts() -> None:
    """Row t of unrolled step j is what a drafter with a key-value cache says after j right drafts."""
    torch = pytest.importorskip("torch")
    drafter_module = pytest.importorskip("fixtures.build.drafter")
    recipe_module = pytest.importorskip("fixtures.build.recipe")
    torch.manual_seed(0)
    config = drafter_module.drafter_config(recipe_module.toy(), positions=64)
    drafter = drafter_module.Drafter(config, torch.arange(16)).eval()
    hidden = config["hidden_size"]
    aux, embeddings = torch.randn(1, 12, 3 * hidden), torch.randn(1, 12, hidden)
    with torch.no_grad():
        rows = 12 - 3
        whole = drafter.unroll(aux, embeddings, steps=3)
        for t in range(rows):
            # Cut everything a chain that starts at row t cannot have seen: later rows of the first step.
            seen = drafter.unroll(aux[:, : t + 4], embeddings[:, : t + 4], steps=3)
            for step in range(3):
                assert torch.allclose(whole[step][:, t], seen[step][:, t], atol=1e-5)
            moved = embeddings.clone()
            moved[:, t + 3] += 1.0  # the draft that only step 2 of row t reads
            other = drafter.unroll(aux[:, : t + 4], moved[:, : t + 4], steps=3)
            assert torch.allclose(whole[1][:, t], other[1][:, t], atol=1e-5)
            assert not torch.allclose(whole[2][:, t], other[2][:, t], atol=1e-5)


@pytest.mark.timeout(240)
def test_the_whole_build_runs_on_a_cpu_at_toy_size(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out, workload = tmp_path / "out", tmp_path / "mini.jsonl"
    command = [sys.executable, "-m", "fixtures.build", "--toy", "--device", "cpu"]
    command += ["--out", str(out), "--work", str(tmp_path / "work"), "--workload", str(workload)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads((out / "figures.json").read_text())
    assert set(figures["pairs"]) >= {"aq_k2_mini on mini_k25", "scratch_k25_mini on mini_k25"}
    assert len(workload.read_text().splitlines()) == figures["workload"]["prompts"] > 0
    assert "mappings of aq_k2_mini" in done.stdout
    manifest = json.loads((out / "manifest.json").read_text())
    assert {Path(name).parts[0] for name in manifest} == {
        "mini_k2", "mini_k25", "mini_llama", "aq_k2_mini", "scratch_k25_mini", "dense_mini",
    }  # fmt: skip
    aq = json.loads((out / "aq_k2_mini" / "config.json").read_text())
    scratch = json.loads((out / "scratch_k25_mini" / "config.json").read_text())
    assert aq["max_position_embeddings"] * 2 == scratch["max_position_embeddings"]
