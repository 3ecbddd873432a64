"""The history: what is kept, what is comparable, and what survives bad lines and many writers."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.cli import main
from pytest_specprobe.profiles import Gate
from pytest_specprobe.report.model.servers import Machine
from pytest_specprobe.report.store import history, journal
from pytest_specprobe.report.store.history import Row, Run, keep, run_of
from pytest_specprobe.report.store.key import Key, hardware, key_of
from pytest_specprobe.report.store.regression import compare
from tests.support.simulated_history import KEY, World, another_key
from tests.support.simulated_reports import World as Probe
from tests.support.simulated_reports import entry, fault, first, report

PASSING = report(entry(Probe(accept=0.6)))
FAILING = report(entry(Probe(accept=0.6), gate=Gate(min_tok_per_s=1e6)))
BROKEN = report(entry(Probe(), findings=[fault("vocab.absolute-ids")]))


def run_from(whole: dict[str, Any]) -> Run:
    run = run_of(*first(whole), commit="abc")
    assert run is not None
    return run


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    run = run_from(PASSING)
    assert keep(run, path=tmp_path / "deep" / history.NAME)
    assert history.read(tmp_path / "deep").runs == (run,)


def test_rows_keep_what_pairs_by_prompt() -> None:
    run, told = run_from(PASSING), PASSING["drafters"][0]
    assert len(run.rows) == told["acceptance"]["accept_length"]["n"]
    rounds = sum(row.rounds or 0 for row in run.rows)
    assert 1 + sum(row.accepted or 0 for row in run.rows) / rounds == pytest.approx(
        run.values["accept_length"]["value"]
    )
    rate = sum(row.tokens or 0 for row in run.rows) / sum(row.decode_s or 0 for row in run.rows)
    assert rate == pytest.approx(run.values["tok_per_s"]["value"], rel=1e-5)


@pytest.mark.parametrize("whole", [FAILING, BROKEN])
def test_only_a_passing_run_is_kept(tmp_path: Path, whole: dict[str, Any]) -> None:
    run = run_of(*first(whole))
    assert not keep(run, path=tmp_path / history.NAME)
    assert not list(tmp_path.iterdir())


def test_a_run_is_small(tmp_path: Path) -> None:
    keep(run_from(PASSING), path=tmp_path / history.NAME)
    assert (tmp_path / history.NAME).stat().st_size < 8000


# --- the key ---------------------------------------------------------------------------------------------------


def spoil(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        *folders, name = path.split(".")
        place: Any = whole
        for folder in folders:
            place = place[int(folder) if folder.isdigit() else folder]
        place[name] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("drafters.0.server.version", "0.5.24", "engine"),
        ("drafters.0.server.device", "cuda", "device"),
        ("drafters.0.server.local_device", "cuda", "hardware"),
        ("drafters.0.server.environment.OMP_NUM_THREADS", "16", "environment.OMP_NUM_THREADS"),
        ("drafters.0.server.environment.LD_PRELOAD", "/lib/libtcmalloc.so", "environment.LD_PRELOAD"),
        ("drafters.0.server.flags.attention_backend", "triton", "flags.attention_backend"),
        ("drafters.0.server.flags.speculative_attention_mode", "decode", "flags.speculative_attention_mode"),
        ("drafters.0.server.flags.tp_size", 2, "flags.tp_size"),
        ("drafters.0.digests.target", "x", "target"),
        ("drafters.0.digests.drafter", "x", "drafter"),
        ("drafters.0.workload.digest", "x", "workload"),
        ("drafters.0.workload.rendered", "x", "rendered"),
        ("drafters.0.speculation.num_steps", 3, "speculation"),
        ("drafters.0.throughput.concurrency", 4, "concurrency"),
        ("machine.cores", 64, "hardware"),
    ],
)
def test_whatever_makes_runs_differ_is_in_the_key(path: str, value: Any, part: str) -> None:
    changed = json.loads(json.dumps(PASSING))
    spoil(path, value)(changed)
    one, other = key_of(*first(PASSING)), key_of(*first(changed))
    assert one is not None
    assert other is not None
    assert part in one.differences(other)
    assert one.id != other.id


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("drafters.0.server.flags.port", 1234),
        ("drafters.0.server.flags.model_path", "/elsewhere"),
        ("drafters.0.server.flags.speculative_draft_model_path", "/elsewhere"),
        ("drafters.0.server.flags.max_total_num_tokens", 999),
        ("drafters.0.server.flags.quantization", False),
        ("drafters.0.name", "renamed"),
        ("machine.python", "3.13.1"),
        ("created", "2030-01-01T00:00:00+00:00"),
    ],
)
def test_what_changes_from_boot_to_boot_is_not(path: str, value: Any) -> None:
    changed = json.loads(json.dumps(PASSING))
    spoil(path, value)(changed)
    assert key_of(*first(PASSING)) == key_of(*first(changed))


@pytest.mark.parametrize(
    "path",
    [
        "digests.target", "digests.drafter", "server.version", "server.flags", "server.environment",
        "server.local_device", "workload.rendered",
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_comparable(path: str) -> None:
    changed = json.loads(json.dumps(PASSING))
    spoil(f"drafters.0.{path}", None)(changed)
    assert run_of(*first(changed)) is None


def test_a_report_of_before_these_were_recorded_is_another_key_and_equals_its_like() -> None:
    old = json.loads(json.dumps(PASSING))
    for name in ("local_device", "host", "environment"):
        del old["drafters"][0]["server"][name]
    del old["drafters"][0]["workload"]["rendered"]
    key, now = key_of(*first(old)), key_of(*first(PASSING))
    assert key is not None
    assert now is not None
    assert {name.partition(".")[0] for name in key.differences(now)} == {"environment", "rendered"}
    old["drafters"][0]["server"]["device"] = "attached"
    assert key_of(*first(old)) is None, "it does not say where"


def test_gpus_are_counted_by_name() -> None:
    machine = Machine(cpu="x", cores=8, memory_gib=1, system="s", python="3", gpus=("B200", "B200", "H200"))
    assert hardware(machine, device="cuda") == "2 x B200, 1 x H200"
    assert hardware(machine, device="cpu") == "8 cores, x"


def attached(host: str | None, **machine: Any) -> Key | None:
    """The key of a run on a server of which only the URL is known, from a machine that differs so."""
    whole = json.loads(json.dumps(PASSING))
    told = {"device": "attached", "local_device": None, "host": host, "environment": None}
    whole["drafters"][0]["server"] |= told
    whole["machine"] |= machine
    return key_of(*first(whole))


def test_attached_servers_are_told_apart_by_where_they_are() -> None:
    """Whatever machine asks: a fixed remote server stays comparable with itself."""
    assert attached("gpu-7") == attached("gpu-7", cores=96, cpu="other", gpus=["H200"])
    assert attached("gpu-7") != attached("gpu-8")
    assert attached("127.0.0.1") != attached("127.0.0.1", cores=96)
    assert attached("127.0.0.1") != attached("127.0.0.1", gpus=["H200"])
    assert attached("127.0.0.1") == attached("127.0.0.1")
    assert attached(None) is None, "of a report that does not say where"


def test_a_served_server_runs_on_this_machine() -> None:
    """``specprobe serve``'s record vouches for it: its hardware and its environment are known."""
    whole = json.loads(json.dumps(PASSING))
    whole["drafters"][0]["server"]["device"] = "attached"
    key, own = key_of(*first(whole)), key_of(*first(PASSING))
    assert key is not None
    assert own is not None
    assert set(key.differences(own)) == {"device"}


@pytest.mark.parametrize(("gate", "unsure", "kept"), [
    ("pass", False, True), ("inconclusive", False, False), ("inconclusive", True, True), ("fail", True, False),
])  # fmt: skip
def test_a_run_that_only_cannot_be_told_from_its_past_is_kept(
    tmp_path: Path, *, gate: str, unsure: bool, kept: bool
) -> None:
    assert keep(replace(run_from(PASSING), gate=gate), path=tmp_path / history.NAME, unsure=unsure) == kept
    assert (tmp_path / history.NAME).exists() == kept


def test_earlier_runs_of_the_same_key_and_no_others(tmp_path: Path) -> None:
    runs = World().history(1, 4)
    runs[1] = another_key(runs[1], engine="SGLang 0.5.24")
    for run in reversed(runs):
        keep(run, path=tmp_path / history.NAME)
    found = history.read(tmp_path)
    assert found.runs == tuple(runs)
    assert found.before(runs[3]) == (runs[0], runs[2])
    assert found.before(runs[0]) == ()
    assert found.comparable(runs[0]) == (runs[0], runs[2], runs[3])


# --- the file --------------------------------------------------------------------------------------------------


def test_bad_lines_cost_themselves_alone(tmp_path: Path) -> None:
    path, (one, two) = tmp_path / history.NAME, World().history(2, 2)
    keep(one, path=path)
    with path.open("a") as file:
        file.write('{"schema": 2, "future": true}\n')
        file.write(json.dumps({**two.to_json(), "rows": [[1]]}) + "\n")
        file.write('{"schema": 1, "half a line')
    keep(two, path=path)
    found = history.read(path)
    assert found.runs == (one, two)
    assert len(found.skipped) == 3
    assert any("schema 2" in text for text in found.skipped)


def test_the_same_run_in_two_files_counts_once(tmp_path: Path) -> None:
    one, two = World().history(3, 2)
    keep(one, path=tmp_path / "a.jsonl")
    keep(one, path=tmp_path / "b.jsonl")
    keep(two, path=tmp_path / "b.jsonl")
    assert history.read(tmp_path / "a.jsonl", tmp_path / "b.jsonl").runs == (one, two)


def test_no_file_is_no_history(tmp_path: Path) -> None:
    assert history.read(tmp_path).runs == ()


WRITER = """
import sys
from pathlib import Path
from pytest_specprobe.report.store import journal
for at in range(20):
    journal.append(Path(sys.argv[1]), {"schema": 1, "writer": int(sys.argv[2]), "at": at, "fill": "x" * 20_000})
"""


def test_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "shared.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, str(writer)]) for writer in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = journal.read(path, schema=1)
    assert found.skipped == ()
    assert sorted((line["writer"], line["at"]) for line in found.lines) == [
        (w, a) for w in range(3) for a in range(20)
    ]


ROWS = st.builds(
    Row,
    id=st.text(min_size=1, max_size=8),
    workload=st.sampled_from(["code", "chat"]),
    rounds=st.none() | st.integers(0, 10_000),
    accepted=st.none() | st.integers(0, 10_000),
    tokens=st.none() | st.integers(0, 10_000),
    decode_s=st.none() | st.just(0.0) | st.floats(1e-6, 1e6),
    baseline_tokens=st.none() | st.integers(0, 10_000),
    baseline_decode_s=st.none() | st.just(0.0) | st.floats(1e-6, 1e6),
)


@given(
    st.lists(ROWS, max_size=5), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)
)
def test_any_run_survives_its_line(rows: list[Row], parts: dict[str, Any]) -> None:
    run = replace(World(prompts=2).history(4, 1)[0], rows=tuple(rows), key=Key(parts))
    assert Run.parse(json.loads(json.dumps(run.to_json()))) == run


@given(
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8) | st.lists(st.integers()))
)
def test_a_line_that_is_no_run_is_a_value_error(line: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a run"):
        Run.parse(line)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a line: of each list its first item."""
    items = (
        value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    )
    return [at, *(place for key, inner in items for place in places(inner, (*at, key)))]


def changed(line: Any, place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found = inner = json.loads(json.dumps(line))
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return dict(found)


LINE = World(prompts=3).history(4, 2)[1].to_json()


@pytest.mark.parametrize("place", places(LINE)[1:], ids=lambda place: ".".join(map(str, place)))
def test_one_wrong_field_costs_its_line_alone(place: tuple[Any, ...], tmp_path: Path) -> None:
    earlier = World(prompts=3).history(4, 1)[0]
    values: tuple[Any, ...] = (None, "x", "", 5, -1, True, [], {}, float("nan"), float("inf"), 10**400, "\ud800")
    lines = [earlier.to_json(), *(changed(LINE, place, value) for value in values)]
    (tmp_path / history.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = history.read(tmp_path)
    assert earlier in found.runs
    for run in found.runs:
        # whatever is taken for a run can be compared, named, and written again
        assert compare(run, [earlier])
        assert run.id
        assert earlier.key.differences(run.key) is not None
        json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False).encode()
    assert main(["history", str(tmp_path)]) == 0


def test_differences_name_both_sides() -> None:
    other = Key({**KEY.parts, "engine": "SGLang 0.6", "flags": {"tp_size": 8, "new": 1}})
    assert KEY.differences(other) == {"engine": ("SGLang 0.5.23", "SGLang 0.6"), "flags.new": (None, 1)}
    assert KEY.without("engine", "flags") == other.without("engine", "flags")


def test_a_busy_machine_is_remembered() -> None:
    busy = report(entry(Probe(accept=0.6), findings=[fault("measure.busy-machine", severity="warning")]))
    assert run_from(PASSING).quiet
    assert not run_from(busy).quiet
    assert not run_from(busy).crowded
    served = json.loads(json.dumps(busy))
    served["drafters"][0]["server"]["device"] = "attached"
    assert not run_from(served).quiet, "a vouched CPU server, whose machine was looked at"
    crowd = report(entry(Probe(accept=0.6), findings=[fault("measure.crowded-machine", severity="warning")]))
    found = run_from(crowd)
    assert found.crowded
    assert not found.quiet
    assert Run.parse(found.to_json()).crowded


@pytest.mark.parametrize("asked", [{"thinking": True}, {"max_new_tokens": 4096}])
def test_prompts_asked_otherwise_are_another_key(asked: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(PASSING))
    changed["drafters"][0]["workload"] |= asked
    assert key_of(*first(PASSING)) != key_of(*first(changed))
