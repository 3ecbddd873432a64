"""Our numbers beside those of SGLang's own benchmark client and log, on one real server.

``SPECPROBE_PROOF_TABLES=DIR pytest proofs/test_beside_sglang.py`` also writes the table of docs/evidence.md.
"""

import json
from pathlib import Path

import pytest

from benchmarks.beside_sglang import main, table
from proofs.tables import keep
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.attach import API_KEY_VARIABLE
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.spec import ServerSpec
from tests.support.spoiled import FIXTURES


def test_beside_sglangs_own_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds on a shared machine differ from one minute to the next, so they are held together only roughly."""
    spec = ServerSpec(
        model=str(FIXTURES / "mini_k25"),
        drafter=FIXTURES / "scratch_k25_mini",
        speculation=Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3),
        device="cpu",
        mla=True,
    )
    log, figures = tmp_path / "server.log", tmp_path / "figures.json"
    with boot(spec, log_path=log, timeout_s=300) as server:
        monkeypatch.setenv(API_KEY_VARIABLE, server.api_key.reveal())
        code = main([
            *("--server", server.url, "--log", str(log), "--workload", "mini", "--prompts", "12"),
            *("--new-tokens", "96", "--pairs", "3", "--json", str(figures)),
        ])  # fmt: skip
    assert code == 0
    found = json.loads(figures.read_text())
    keep("beside_sglang", table(found))
    assert found["client_overhead"]["share"]["high"] < 0.02, "client overhead"
    assert found["same_texts"] == [36, 36], "the same prompts, and so the same work"
    length = found["accept_length"]
    # the server's mean also covers a warm-up request, and lacks what its last log interval left over
    for theirs in ("server_info_after_ours", "server_info_after_theirs", "log"):
        assert length["strict"] == pytest.approx(length[theirs], rel=0.05)
    assert 0.5 < found["ratio"] < 2.0
    for turns in ("log_during_ours", "log_during_theirs"):
        assert 0.5 < found["decode_tok_per_s"]["ours"] / found["decode_tok_per_s"][turns] < 2.0
