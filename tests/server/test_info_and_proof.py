"""``/server_info`` as real servers answer it, and the proofs: each fault fails exactly its own."""

import copy
import ipaddress
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.http.info import ServerInfo, differences
from pytest_specprobe.server.process.listeners import Listener
from pytest_specprobe.server.proof import prove
from pytest_specprobe.server.spec import ServerSpec

ANY = str(ipaddress.IPv4Address(0))
ANSWER: dict[str, Any] = {
    "version": "0.5.23",
    "model_path": "/m",
    "api_key": "sesame",
    "launch_command": ["--api-key", "sesame"],
    "host": "127.0.0.1",
    "port": 31000,
    "trust_remote_code": False,
    "random_seed": 5,
    "max_running_requests": 48,
    "cuda_graph_config": {"decode": {"bs": [1, 2]}},
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/d",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
    "internal_states": [{"avg_spec_accept_length": 1.25, "max_running_requests": 48, "memory_usage": {"weight": 1}}],
}
OWN = (Listener("127.0.0.1", ANSWER["port"], inode=1, uid=0),)
SPEC = ServerSpec(
    model="/m", drafter=Path("/d"), speculation=Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
)


def answer(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(ANSWER), **changes}


def canary(**changes: Any) -> Generation:
    fields: dict[str, Any] = {
        "prompt_id": "canary", "workload": "w", "prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 4,
        "output_ids": (1, 2, 3, 4), "text": "t", "finish_reason": "length", "rounds": 3, "accepted": 0,
        "histogram": (3, 0, 0), "sglang_accept_length": 1.33, "start_s": 0.0, "first_s": 1.0, "last_s": 2.0,
        "first_tokens": 1, "chunk_tokens": (1, 1, 1, 1), "chunk_s": (1.0, 1.2, 1.5, 2.0),
    }  # fmt: skip
    return Generation(**{**fields, **changes})


def proofs(
    *, info: dict[str, Any] | None = None, spec: ServerSpec = SPEC, log: str | None = "fine\n",
    done: Generation | None = None, scrubbed: tuple[str, ...] | None = (),
    sockets: tuple[Listener, ...] | None = OWN,
) -> tuple[Finding, ...]:  # fmt: skip
    parsed = ServerInfo.parse(info or answer())
    return prove(parsed, spec=spec, log_text=log, canary=done or canary(), scrubbed=scrubbed, sockets=sockets)


def failing(findings: tuple[Finding, ...]) -> list[str]:
    return [f.id for f in findings if f.status == "fail"]


def test_the_answer_is_parsed_and_its_secrets_are_gone() -> None:
    info = ServerInfo.parse(answer())
    assert (info.algorithm, info.num_steps, info.eagle_topk, info.num_draft_tokens) == ("EAGLE3", 2, 1, 3)
    assert info.server_accept_length == 1.25
    assert "sesame" not in repr(info)


def test_a_ranks_live_steps_overrule_those_of_the_boot() -> None:
    live = answer(internal_states=[{"speculative_num_steps": 4, "speculative_num_draft_tokens": 5}])
    assert ServerInfo.parse(live).num_steps == 4


@pytest.mark.parametrize(
    "broken",
    [
        [],
        None,
        {"version": "1"},
        answer(version=5),
        answer(speculative_num_steps="2"),
        answer(speculative_num_steps=True),
        answer(speculative_accept_threshold_single="high"),
        answer(internal_states={"a": 1}),
        answer(internal_states=[1]),
        answer(internal_states=[{"avg_spec_accept_length": "x"}]),
    ],
    ids=range(10),
)
def test_an_answer_of_another_shape_is_an_error(broken: Any) -> None:
    with pytest.raises(MeasurementError, match="not what SGLang sends"):
        ServerInfo.parse(broken)


def test_differences_are_effective_ones_leaf_by_leaf() -> None:
    baseline = answer(
        port=1,
        random_seed=9,
        speculative_algorithm=None,
        max_running_requests=None,
        cuda_graph_config={"decode": {"bs": [1]}},
        internal_states=[{"max_running_requests": 4096, "memory_usage": {"weight": 2}, "last_gen_throughput": 3.0}],
    )
    found = differences(ServerInfo.parse(baseline), ServerInfo.parse(answer()))
    assert found == {"cuda_graph_config.decode.bs": ([1], [1, 2]), "max_running_requests": (4096, 48)}


def test_a_good_server_passes_every_proof() -> None:
    assert {f.status for f in proofs()} == {"pass"}
    assert len({f.id for f in proofs()}) == len(proofs())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"speculative_algorithm": "EAGLE"}, "proof.algorithm"),
        ({"speculative_draft_model_path": "/other"}, "proof.draft-path"),
        ({"speculative_num_steps": 3}, "proof.settings"),
        ({"speculative_eagle_topk": 4}, "proof.settings"),
        ({"speculative_num_draft_tokens": 4}, "proof.settings"),
        ({"speculative_accept_threshold_single": 0.9}, "proof.lossy-threshold"),
        ({"speculative_accept_threshold_acc": 0.99}, "proof.lossy-threshold"),
        ({"speculative_accept_threshold_acc": None}, "proof.lossy-threshold"),
        ({"speculative_adaptive": True}, "proof.adaptive"),
        ({"host": "10.0.0.1"}, "proof.host"),
        ({"host": "::"}, "proof.host"),
        ({"host": ["127.0.0.1"]}, "proof.host"),
        ({"trust_remote_code": True}, "proof.remote-code"),
        ({"trust_remote_code": "yes"}, "proof.remote-code"),
    ],
)
def test_each_wrong_setting_fails_its_own_proof(changes: dict[str, Any], expected: str) -> None:
    assert failing(proofs(info=answer(**changes))) == [expected]


@pytest.mark.parametrize("speculates", [True, False])
def test_where_it_listens_and_whose_code_it_runs_is_held_for_every_server(*, speculates: bool) -> None:
    """A baseline too; what a server does not say, and whoever booted an attached one, is not held against it."""
    nothing = {} if speculates else dict.fromkeys((k for k in ANSWER if k.startswith("speculative_")), None)
    spec = SPEC if speculates else ServerSpec(model="/m")
    done = canary() if speculates else canary(rounds=None, accepted=None, histogram=None)
    wrong = answer(**nothing, host="10.0.0.1", trust_remote_code=True)
    both = ["proof.host", "proof.remote-code"]
    assert failing(proofs(spec=spec, info=wrong, done=done)) == both
    trusted = replace(spec, trust_remote_code=True)
    assert failing(proofs(spec=trusted, info=wrong, done=done)) == ["proof.host"]
    assert failing(proofs(spec=trusted, info=answer(**nothing), done=done)) == ["proof.remote-code"]
    attached = proofs(spec=spec, info=wrong, done=done, scrubbed=None)
    silent = {k: v for k, v in answer(**nothing).items() if k not in ("host", "trust_remote_code")}
    unsaid = proofs(spec=spec, info=silent, done=done)
    for findings in (attached, unsaid):
        assert [f.id for f in findings if f.id in both and f.status == "skip"] == both


def test_a_server_that_fell_back_to_plain_decoding_is_named() -> None:
    plain = canary(rounds=None, accepted=None, histogram=None)
    assert failing(proofs(done=plain)) == ["proof.not-speculating"]
    assert failing(proofs(done=canary(rounds=0, accepted=0, histogram=()))) == ["proof.not-speculating"]
    nothing = dict.fromkeys((k for k in ANSWER if k.startswith("speculative_")), None)
    names = failing(proofs(info=answer(**nothing), done=plain))
    assert names == ["proof.algorithm"], "the rest follows from it"


def test_simulated_acceptance_set_for_the_child_fails() -> None:
    forged = ServerSpec(
        model="/m", drafter=SPEC.drafter, speculation=SPEC.speculation, env=(("SGLANG_SIMULATE_ACC_LEN", "3"),)
    )
    assert failing(proofs(spec=forged)) == ["proof.simulated-acceptance"]


@pytest.mark.parametrize(
    "line",
    [
        "[t] Scheduler hit an exception: Traceback (most recent call last):",
        "ERROR:    Exception in ASGI application",
        "[2026-11-30 00:00:00] ERROR: lost a worker",
    ],
)
def test_a_fault_in_the_log_fails_and_a_harmless_line_does_not(line: str) -> None:
    harmless = "Ignore import error when loading x: Traceback (most recent call last): ERROR\n"
    assert failing(proofs(log=harmless + "an error rate of 0\n")) == []
    assert failing(proofs(log=f"{harmless}{line}\n")) == ["proof.log-errors"]


def test_an_attached_server_leaves_four_points_unproved() -> None:
    findings = proofs(log=None, scrubbed=None, info=answer(speculative_draft_model_path="/elsewhere/d"))
    assert {f.id for f in findings if f.status == "skip"} == {
        "proof.simulated-acceptance", "proof.log-errors", "proof.host", "proof.remote-code"
    }  # fmt: skip
    assert failing(findings) == []
    other = proofs(log=None, scrubbed=None, info=answer(speculative_draft_model_path="/elsewhere/x"))
    assert [(f.id, f.severity) for f in other if f.status == "fail"] == [("proof.draft-path", "warning")]


def test_a_baseline_must_not_speculate() -> None:
    baseline = ServerSpec(model="/m")
    plain = canary(rounds=None, accepted=None, histogram=None)
    nothing = dict.fromkeys((k for k in ANSWER if k.startswith("speculative_")), None)
    assert failing(proofs(spec=baseline, info=answer(**nothing), done=plain)) == []
    assert failing(proofs(spec=baseline)) == ["proof.baseline-speculates"]


def test_a_server_to_be_pinned_must_really_be_adaptive() -> None:
    """SGLang switches its adaptive runtime off with a warning where it cannot run, and boots on."""
    pinned = replace(SPEC, candidates=(1, 2))
    assert failing(proofs(spec=pinned, info=answer(speculative_adaptive=True))) == []
    assert failing(proofs(spec=pinned, info=answer(speculative_adaptive=False))) == ["proof.adaptive"]
    effective = answer(speculative_adaptive=True, internal_states=[{"speculative_adaptive": False}])
    assert failing(proofs(spec=pinned, info=effective)) == ["proof.adaptive"]


ANSWERS = Path(__file__).with_name("answers")
OF_CUDA = ServerSpec(
    model="smol", drafter=Path("drafter"), speculation=Speculation(num_steps=4, eagle_topk=1, num_draft_tokens=5)
)


def of_cuda(name: str) -> dict[str, Any]:
    """The whole ``/server_info`` of SGLang 0.5.17 on an H200, CUDA graphs on, as it was answered."""
    found: dict[str, Any] = json.loads((ANSWERS / f"sglang-0.5.17-h200-{name}.json").read_text())
    return found


def test_the_answer_of_a_cuda_server_proves_what_it_was_booted_as() -> None:
    own = listening(("127.0.0.1", 31003))
    assert failing(proofs(spec=OF_CUDA, info=of_cuda("eagle3"), sockets=own)) == []
    other = replace(OF_CUDA, speculation=SPEC.speculation)
    assert failing(proofs(spec=other, info=of_cuda("eagle3"), sockets=own)) == ["proof.settings"]
    plain, of_plain = canary(rounds=None, accepted=None, histogram=None), listening(("127.0.0.1", 31000))
    baseline = ServerSpec(model="smol")
    assert failing(proofs(spec=baseline, info=of_cuda("baseline"), done=plain, sockets=of_plain)) == []
    assert failing(proofs(spec=OF_CUDA, info=of_cuda("baseline"), done=plain, sockets=of_plain)) == [
        "proof.algorithm"
    ]
    assert failing(proofs(spec=baseline, info=of_cuda("eagle3"), sockets=own)) == ["proof.baseline-speculates"]


def test_the_answer_of_a_cuda_server_holds_what_is_read_of_it() -> None:
    info, plain = ServerInfo.parse(of_cuda("eagle3")), ServerInfo.parse(of_cuda("baseline"))
    assert (info.version, info.model_path, info.draft_model_path) == ("0.5.17", "smol", "drafter")
    assert (info.algorithm, plain.algorithm) == ("EAGLE3", None)
    assert info.server_accept_length is not None
    assert info.server_accept_length > 1
    assert info.decode_log_interval == 40
    assert {"device", "dtype", "mem_fraction_static"} <= info.effective().keys()
    # SGLang itself caps the batch of a server that speculates, and with it the shapes of its CUDA graphs
    assert {key.rpartition(".")[2] for key in differences(plain, info)} == {
        "bs", "effective_max_running_requests_per_dp", "max_running_requests", "max_total_num_tokens",
        "pp_max_micro_batch_size",
    }  # fmt: skip


def listening(*places: tuple[str, int]) -> tuple[Listener, ...]:
    return tuple(Listener(address, port, inode=at, uid=0) for at, (address, port) in enumerate(places))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("device", "places", "status", "seen"),
    [
        ("cpu", (("127.0.0.1", 31003), ("::1", 5)), "pass", "2 sockets on loopback"),
        ("cpu", (("127.0.0.1", 31003), (ANY, 5)), "fail", f"{ANY}:5"),
        ("cuda", (("127.0.0.1", 31003), ("::", 5)), "pass", "1 sockets on loopback; 1 more on other interfaces"),
        ("cuda", ((ANY, 31003),), "fail", f"{ANY}:31003"),
        ("cuda", (("127.0.0.1", 5),), "fail", "no socket of the server's on port 31003"),
        ("cuda", (), "fail", "no socket of the server's on port 31003"),
        ("cuda", None, "skip", "not visible"),
    ],
)
def test_a_server_that_other_machines_can_reach_fails(
    device: str, places: tuple[tuple[str, int], ...] | None, status: str, seen: str, plain: bool
) -> None:
    said = answer(port=31003, device=device)
    sockets = None if places is None else listening(*places)
    spec = ServerSpec(model="m") if plain else SPEC
    finding = next(f for f in proofs(info=said, spec=spec, sockets=sockets) if f.id == "proof.sockets")
    assert finding.status == status
    assert seen in finding.seen
