"""One boot for several step counts, for real: the same counts and texts as separate boots, and no silent failure."""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.shared_boot import chain_spec
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.pinned_steps import NotPinned, PinnedSteps
from pytest_specprobe.staging import stage
from tests.support.jobs import Job, run_job

FIXTURES = Path(__file__).parents[1] / "fixtures"
STEPS = (1, 2, 3, 5)
TOKENS = 48
BOOT_S = 400.0


def answers(client: Client) -> list[Generation]:
    """Six prompts one at a time, so that nothing but the step count differs between two servers."""
    chats = load_workload("mini", root=Path()).first(6).chats
    prompts = [
        Prompt(id=c.id, workload=c.workload, text=c.text, input_ids=client.tokenize_chat(c.messages)) for c in chats
    ]
    client.flush()
    return [client.generate(prompt, max_new_tokens=TOKENS, ignore_eos=True) for prompt in prompts]


def counted(found: list[Generation]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(g.output_ids, g.histogram or ()) for g in found]


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    return stage(FIXTURES / "aq_k2_mini", cache=cache, target_positions=2048).path


@pytest.fixture(scope="module")
def shared(drafter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnedServer]:
    """One boot that holds all step counts; it starts on 2."""
    log = tmp_path_factory.mktemp("shared") / "server.log"
    with boot(chain_spec(drafter, 2, candidates=STEPS), log_path=log, timeout_s=BOOT_S) as server:
        yield server


@pytest.fixture(scope="module")
def pinned(shared: OwnedServer) -> Mapping[int, list[Generation]]:
    """Each step count twice and out of order, so that what a switch leaves behind would show."""
    steps = PinnedSteps(shared.client, steps=2)
    found: dict[int, list[Generation]] = {}
    for turn in (*STEPS, *reversed(STEPS)):
        steps.pin(turn)
        again = answers(shared.client)
        steps.verify()
        assert counted(found.setdefault(turn, again)) == counted(again)
    return found


@pytest.mark.parametrize("steps", [1, 3, 5])  # 2 is what the whole sweep below runs on two boots
def test_a_pinned_step_count_counts_and_writes_as_a_boot_of_its_own(
    drafter: Path, pinned: Mapping[int, list[Generation]], steps: int, tmp_path: Path
) -> None:
    with boot(chain_spec(drafter, steps), log_path=tmp_path / "server.log", timeout_s=BOOT_S) as server:
        alone = answers(server.client)
    assert counted(pinned[steps]) == counted(alone)
    assert max(len(g.histogram or ()) for g in alone) <= steps + 1


def test_step_counts_differ_where_they_should(pinned: Mapping[int, list[Generation]]) -> None:
    """Or the proof above would also hold for a server that never switches."""
    histograms = [[g.histogram for g in pinned[steps]] for steps in STEPS]
    assert all(one != other for one, other in itertools.pairwise(histograms))
    assert [any(len(h or ()) > 3 and any((h or ())[3:]) for h in some) for some in histograms] == [
        False, False, True, True
    ]  # fmt: skip
    assert len({tuple(g.output_ids for g in pinned[steps]) for steps in STEPS}) == 1


def test_what_was_not_prebuilt_is_refused_and_nothing_moves(shared: OwnedServer, pinned: object) -> None:
    steps = PinnedSteps(shared.client, steps=STEPS[0])
    for wrong in (4, 0, -1, 6):
        with pytest.raises(NotPinned, match="refuses to be pinned"):
            steps.pin(wrong)
        steps.verify()
    assert "specprobe step pin refused: 4 is none of the prebuilt step counts" in shared.log_text()
    assert shared.client.set_internal_state("pp_max_micro_batch_size", 4)
    steps.verify()


def test_a_plug_in_that_was_not_loaded_is_found_out_by_the_first_pin(drafter: Path, tmp_path: Path) -> None:
    """The server is up, adaptive and healthy; only the plug-in is not there."""
    alone = chain_spec(drafter, 2, candidates=(1, 2), SGLANG_PLUGINS="specprobe_cpu")
    with boot(alone, log_path=tmp_path / "server.log", timeout_s=BOOT_S) as server:
        assert server.client.server_info().effective()["speculative_adaptive"] is True
        with pytest.raises(NotPinned, match="refuses to be pinned to 1 steps"):
            PinnedSteps(server.client, steps=2).pin(1)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("sweep")
    chats = load_workload("mini", root=Path()).first(8).chats
    rows = [{"id": c.id, "workload": c.workload, "messages": [dict(m) for m in c.messages]} for c in chats]
    (folder / "few.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return run_job(
        folder,
        "--specprobe-drafter=aq_k2_mini",
        "--no-specprobe-blind",
        "--specprobe-workload=few.jsonl",
        "--specprobe-sweep=1/1/2,3/1/4",
        timeout=1500,
    )


def test_the_whole_sweep_is_in_the_report(job: Job) -> None:
    entry = job.entries["aq_k2_mini"]
    rows, best = {row["setting"]: row for row in entry["sweep"]}, entry["sweep_best"]
    assert {name: row["how"] for name, row in rows.items()} == {
        "2/1/3": "one-boot", "1/1/2": "one-boot", "3/1/4": "one-boot"
    }, job.output  # fmt: skip
    assert best["fallback"] is None
    assert rows["2/1/3"]["own"]
    assert all(row["speedup"]["low"] < row["speedup"]["high"] for row in rows.values())
    assert [len(rows[name]["histogram"]) for name in ("1/1/2", "2/1/3", "3/1/4")] == [2, 3, 4]
    assert all(sum(row["histogram"]) > 100 for row in rows.values())
    assert rows["3/1/4"]["histogram"][3] > 0
    boots = [p["what"] for p in entry["phases"] if p["name"] == "boot"]
    assert boots == ["drafter", "baseline", "drafter, steps 1, 2, 3 in one boot"]


def test_the_own_setting_counts_alike_on_both_of_its_boots(job: Job) -> None:
    parity = job.entries["aq_k2_mini"]["sweep_best"]["parity"]
    assert parity["setting"] == "2/1/3"
    assert parity["identical"] == parity["compared"] > 0


def test_the_reader_sees_the_best_setting_and_how_far_it_is_trusted(job: Job) -> None:
    for words in ("at 1/1/2", "at 3/1/4", "shared boot", "best setting", "so that all 3 hold at once"):
        assert words in job.output
