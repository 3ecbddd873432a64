"""Faults planted in real servers and files: each ends in the right verdict, finding, culprit and exit code.

``SPECPROBE_PROOF_TABLES=DIR pytest proofs/test_planted_faults.py`` also writes the table of docs/evidence.md.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from proofs.between import Body, Edit, proxy
from proofs.tables import keep
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.attach import API_KEY_VARIABLE
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec
from tests.support.jobs import Job, run_job
from tests.support.spoiled import FIXTURES, WEIGHTS, header, overwrite, profile, random_bf16, read

CHAIN = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
MINI = Path(__file__).parents[1] / "pytest_specprobe" / "measure" / "workloads" / "mini.jsonl"
TARGET, DRAFTER = FIXTURES / "mini_k25", FIXTURES / "scratch_k25_mini"
# Whether anything is accepted at all; how fast it is is another question.
ACCEPTANCE = ("specprobe/test_vocab_mapping.py", "specprobe/test_wiring.py", "specprobe/test_boot.py",
              "specprobe/test_acceptance.py")  # fmt: skip
WITHOUT_BASELINE = ("--specprobe-baseline=none", "--no-specprobe-blind")
# What mini_k25 answers to these repeats itself.
LOOPING = (
    ("import os\n", (4, 6)), ("import re\n", (3,)), ("def f():\n", (10,)), ("def main():\n", (8, 10)),
    ("class A:\n", (8, 10)), ("    def get(self):\n", (3, 4, 6)), ("self.a = a\n", (6,)), ("else:\n", (6,)),
    ("# comment\n", (3, 4)), ("x = []\n", (6,)),
)  # fmt: skip
ROWS: dict[str, str] = {}
HEAD = (
    "| planted fault | exit | verdict | finding | culprit | what the probe said |",
    "| --- | --- | --- | --- | --- | --- |",
)


@pytest.fixture(scope="module", autouse=True)
def _table() -> Iterator[None]:
    yield
    keep("planted_faults", (*HEAD, *ROWS.values()))


def booted(folder: Path, *args: str, drafter: Path | None = DRAFTER, env: tuple[tuple[str, str], ...] = ()) -> Any:
    """A server that is somebody else's, as far as the probe knows."""
    spec = ServerSpec(
        model=str(TARGET),
        drafter=drafter,
        speculation=CHAIN if drafter else None,
        device="cpu",
        mla=True,
        server_args=args,
        env=env,
    )
    return boot(spec, log_path=folder / "server.log", timeout_s=300)


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnedServer]:
    """One boot for most rows: it starts with a lossy threshold, which can be put right while it runs."""
    folder = tmp_path_factory.mktemp("lossy")
    with booted(folder, "--speculative-accept-threshold-single", "0.5") as server:
        yield server


@pytest.fixture
def running(lossy: OwnedServer) -> OwnedServer:
    """The same server, in order."""
    set_threshold(lossy.url, lossy.api_key.reveal(), 1.0)
    return lossy


def set_threshold(url: str, key: str, value: float) -> None:
    answer = httpx.post(
        f"{url}/set_internal_state",
        json={"server_args": {"speculative_accept_threshold_single": value}},
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
    )
    assert answer.json() == [True]


@contextmanager
def as_a_stranger(server: OwnedServer) -> Iterator[None]:
    """Hold the key of a server, but no record that it is ours; afterwards it still runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(API_KEY_VARIABLE, server.api_key.reveal())
        patch.setenv("SPECPROBE_STATE_DIR", f"{server.log_path}.stranger")
        yield
    assert server.alive()


@contextmanager
def attached(server: OwnedServer) -> Iterator[tuple[str, ...]]:
    """Options that probe this server as somebody else's."""
    with as_a_stranger(server):
        yield (f"--specprobe-server={server.url}", *WITHOUT_BASELINE)


def finding(entry: dict[str, Any], finding_id: str) -> dict[str, Any]:
    return next(check for check in entry["checks"] if check["id"] == finding_id)


def ends(
    fault: str,
    job: Job,
    name: str,
    *,
    code: int,
    verdict: str | None,
    finding_id: str | None = None,
    culprit: str | None = None,
    status: str = "fail",
    also: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Hold one run against what its fault must end in, and keep its row of the table; return the entry.

    ``also`` may fail besides; anything else may not.
    """
    entry = job.entries[name]
    failing = {c["id"] for c in entry["checks"] if c["status"] == "fail" and c["severity"] == "error"}
    said = entry["reasons"][0]
    if finding_id is not None:
        found = finding(entry, finding_id)
        assert (found["status"], found["culprit"]) == (status, culprit), job.output
        said = found["seen"]
        assert status == "pass" or finding_id in job.output
    assert failing - also == ({finding_id} if finding_id and status == "fail" else set()), job.output
    assert (job.code, entry["verdict"]) == (code, verdict), job.output
    assert "Traceback" not in job.output
    cells = (fault, f"{code}", verdict or "none: invalid", finding_id and f"`{finding_id}`", culprit, said)
    ROWS[fault] = "| " + " | ".join(str(cell or "").replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
    return entry


def test_a_lossy_threshold(lossy: OwnedServer, tmp_path: Path) -> None:
    set_threshold(lossy.url, lossy.api_key.reveal(), 0.5)  # as booted, should another row have come before
    with attached(lossy) as options:
        job = run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", *options, *ACCEPTANCE)
    ends(
        "`--speculative-accept-threshold-single 0.5`", job, "scratch_k25_mini",
        code=1, verdict="broken", finding_id="proof.lossy-threshold", culprit="launch-flags",
    )  # fmt: skip


def test_nothing(running: OwnedServer, tmp_path: Path) -> None:
    """The control: without any fault no check fails, and only for want of a baseline is there no verdict."""
    with attached(running) as options:
        job = run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", *options, *ACCEPTANCE)
    entry = ends("nothing (attached, without a baseline)", job, "scratch_k25_mini", code=10, verdict="undecided")
    assert entry["acceptance"]["accept_length"]["low"] > 1.3
    assert finding(entry, "measure.foreign-requests")["status"] == "pass"


def few(folder: Path) -> str:
    """Return the option for a workload of 8 prompts, where how many does not matter."""
    (folder / "few.jsonl").write_text("\n".join(MINI.read_text().splitlines()[::4]))
    return "--specprobe-workload=few.jsonl"


def through(server: OwnedServer, edit: Edit, tmp_path: Path, *more: str) -> Job:
    """Probe a server with a few prompts through a proxy that edits requests."""
    with as_a_stranger(server), proxy(server.url, edit) as url:
        options = (f"--specprobe-server={url}", few(tmp_path), *WITHOUT_BASELINE)
        return run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", *options, *ACCEPTANCE)


def test_thresholds_changed_during_the_run(running: OwnedServer, tmp_path: Path) -> None:
    def edit(number: int, body: Body) -> Body:
        if number == 8:
            set_threshold(running.url, running.api_key.reveal(), 0.9)
        return body

    job = through(running, edit, tmp_path)
    ends(
        "accept threshold changed during the run", job, "scratch_k25_mini",
        code=1, verdict="broken", finding_id="proof.lossy-threshold", culprit="launch-flags",
    )  # fmt: skip


def test_a_request_that_fails_midway(running: OwnedServer, tmp_path: Path) -> None:
    job = through(running, lambda number, body: None if number == 8 else body, tmp_path)
    entry = ends(
        "one request breaks off midway", job, "scratch_k25_mini",
        code=1, verdict=None, finding_id="measure.failed", culprit="machine",
    )  # fmt: skip
    assert entry["acceptance"] is None, "no smaller number instead"


def test_one_repeated_token(running: OwnedServer, tmp_path: Path) -> None:
    def edit(number: int, body: Body) -> Body:
        body["sampling_params"]["logit_bias"] = {"65": 1000.0}
        return body

    job = through(running, edit, tmp_path)
    ends(
        "the target writes one repeated token", job, "scratch_k25_mini",
        code=1, verdict=None, finding_id="measure.one-token", culprit="engine",
        also=frozenset({"measure.not-greedy"}),  # the bias is not on the target's own reading
    )  # fmt: skip


def test_looping_prompts(running: OwnedServer, tmp_path: Path) -> None:
    prompts = [
        {"prompt": line * times, "id": f"{line.strip()} x {times}"} for line, counts in LOOPING for times in counts
    ]
    lines = [json.dumps(prompt) for prompt in prompts]
    (tmp_path / "loops.jsonl").write_text("\n".join((*lines, MINI.read_text())))
    with attached(running) as options:
        job = run_job(
            tmp_path,
            "--specprobe-drafter=scratch_k25_mini",
            "--specprobe-workload=loops.jsonl",
            *options,
            *ACCEPTANCE,
        )
    entry = ends(
        "a third of the prompts make the target loop", job, "scratch_k25_mini",
        code=1, verdict=None, finding_id="measure.looping", culprit="workload",
    )  # fmt: skip
    assert {prompt["id"] for prompt in prompts} <= entry["acceptance"]["dropped"].keys()


def test_a_second_client(running: OwnedServer, tmp_path: Path) -> None:
    """It pauses between its requests, so that the cache can be flushed and ours still succeed."""
    stop = threading.Event()

    def hammer() -> None:
        body = {"input_ids": [256, 258, *range(97, 120)], "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
        headers = {"Authorization": f"Bearer {running.api_key.reveal()}"}
        with httpx.Client(base_url=running.url, headers=headers, timeout=120) as client:
            while not stop.wait(0.2):
                client.post("/generate", json=body)

    thread = threading.Thread(target=hammer)
    thread.start()
    try:
        with attached(running) as options:
            job = run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", *options, *ACCEPTANCE)
    finally:
        stop.set()
        thread.join()
    ends(
        "a second client on the server", job, "scratch_k25_mini",
        code=1, verdict=None, finding_id="measure.foreign-requests", culprit="machine",
    )  # fmt: skip


def test_no_speculation(tmp_path: Path) -> None:
    with booted(tmp_path, drafter=None) as server, attached(server) as options:
        job = run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", *options, *ACCEPTANCE)
    ends(
        "a server that does not speculate", job, "scratch_k25_mini",
        code=1, verdict="broken", finding_id="proof.algorithm", culprit="launch-flags",
    )  # fmt: skip


def test_eagle_for_eagle3(tmp_path: Path) -> None:
    """SGLang boots it, answers correctly, and never applies fc."""
    with booted(tmp_path, "--speculative-alg", "EAGLE") as server, attached(server) as options:
        job = run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", *options, *ACCEPTANCE)
    ends(
        "`EAGLE` for `EAGLE3`", job, "scratch_k25_mini",
        code=1, verdict="broken", finding_id="proof.algorithm", culprit="launch-flags",
    )  # fmt: skip


def test_simulated_acceptance_of_an_attached_server(tmp_path: Path) -> None:
    """Its environment cannot be seen, which is said. The drafts stand as text, so only the target can tell."""
    forged = (("SGLANG_SIMULATE_ACC_LEN", "2.5"), ("SGLANG_SIMULATE_ACC_TOKEN_MODE", "real-draft-token"))
    with booted(tmp_path, env=forged) as server, attached(server) as options:
        job = run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", few(tmp_path), *options, *ACCEPTANCE)
    entry = ends(
        "`SGLANG_SIMULATE_ACC_LEN=2.5`, attached server", job, "scratch_k25_mini",
        code=1, verdict=None, finding_id="measure.not-greedy", culprit="engine",
        also=frozenset({"measure.pinned"}),
    )  # fmt: skip
    assert finding(entry, "proof.simulated-acceptance")["status"] == "skip"
    assert "unproved" in finding(entry, "proof.simulated-acceptance")["seen"]


def blinded(drafter: Path) -> None:
    """Make a drafter its own blind control: ``fc`` zeroed."""
    _, tensors = header(drafter / WEIGHTS)
    begin, end = tensors["fc.weight"]["data_offsets"]
    overwrite(drafter / WEIGHTS, "fc.weight", bytes(end - begin))


def test_a_blind_drafter_in_the_file(tmp_path: Path) -> None:
    blinded(profile(tmp_path))
    job = run_job(tmp_path, "--specprobe-drafter=bad", *WITHOUT_BASELINE, *ACCEPTANCE)
    entry = ends(
        "a blind drafter (`fc` zeroed), its files", job, "bad",
        code=1, verdict="broken", finding_id="tensor.constant", culprit="drafter-file",
    )  # fmt: skip
    assert entry["server"] is None, "nothing was booted"


def test_a_blind_drafter_on_somebody_elses_server(tmp_path: Path) -> None:
    """The files here are in order, and a copy of the same name with ``fc`` zeroed is what is served."""
    served = profile(tmp_path).rename(tmp_path / "scratch_k25_mini")
    blinded(served)
    with booted(tmp_path, drafter=served) as server, attached(server) as options:
        job = run_job(tmp_path, "--specprobe-drafter=scratch_k25_mini", *options, *ACCEPTANCE)
    entry = ends("a blind drafter on an attached server", job, "scratch_k25_mini", code=1, verdict="uncorrelated")
    assert entry["acceptance"]["p1_margin"]["low"] <= 0


def test_a_random_drafter_and_simulated_acceptance_of_an_owned_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two faults in one run: the variable is scrubbed, so that the drafter is measured as it is."""
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "2.5")
    drafter = profile(tmp_path)
    chance = np.random.default_rng(0)
    _, tensors = header(drafter / WEIGHTS)
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight") or name in {"fc.weight", "lm_head.weight"}:
            overwrite(drafter / WEIGHTS, name, random_bf16(chance, tensor["shape"]))
    job = run_job(tmp_path, "--specprobe-drafter=bad", *WITHOUT_BASELINE, *ACCEPTANCE)
    entry = ends("a drafter of random weights", job, "bad", code=1, verdict="uncorrelated")
    assert entry["acceptance"]["sglang_accept_length"] > 1.0, "although SGLang's own number is above one"
    assert entry["acceptance"]["accept_length"]["value"] < 1.05
    ends(
        "`SGLANG_SIMULATE_ACC_LEN=2.5`, owned server", job, "bad",
        code=1, verdict="uncorrelated", finding_id="proof.simulated-acceptance", culprit="harness", status="pass",
    )  # fmt: skip
    assert "SGLANG_SIMULATE_ACC_LEN" in finding(entry, "proof.simulated-acceptance")["seen"]
    assert "SGLANG_SIMULATE_ACC_LEN" in entry["server"]["scrubbed"]


def test_a_permuted_mapping(tmp_path: Path) -> None:
    """The same ids in another order than the head's rows: to the files only odd, since SGLang takes any order."""
    drafter = profile(tmp_path)
    offsets = np.frombuffer(read(drafter / WEIGHTS, "d2t"), dtype=np.int64)
    ids = np.random.default_rng(0).permutation(offsets + np.arange(len(offsets)))
    overwrite(drafter / WEIGHTS, "d2t", (ids - np.arange(len(ids))).tobytes())
    job = run_job(tmp_path, "--specprobe-drafter=bad", *WITHOUT_BASELINE, *ACCEPTANCE)
    entry = ends("`d2t` permuted against the head's rows", job, "bad", code=1, verdict="uncorrelated")
    assert (finding(entry, "vocab.order")["severity"], finding(entry, "vocab.order")["status"]) == ("warning", "fail")
    assert entry["acceptance"]["p1_margin"]["low"] <= 0
