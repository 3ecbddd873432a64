"""Every edge at which data of others comes in, with a good document each, and what follows from reading it."""

import contextlib
import io
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from pytest_specprobe import private
from pytest_specprobe.cli import main, servers
from pytest_specprobe.errors import CULPRITS, SpecprobeError
from pytest_specprobe.findings import Finding
from pytest_specprobe.foreign import printable
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.servers.stored_baselines import StoredBaselines
from pytest_specprobe.profiles import Speculation, load_profiles
from pytest_specprobe.report.build import acceptance_of
from pytest_specprobe.report.store import baselines, history, journal
from pytest_specprobe.server import boot_times
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.http.info import ServerInfo, differences
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.process.supervisor import read_process
from pytest_specprobe.server.proof import prove
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.staging import stage
from pytest_specprobe.staging.prune import prune
from pytest_specprobe.staging.stage import MANIFEST
from tests.support import checkpoint_builder as build
from tests.support import simulated_history, simulated_reports
from tests.support.baseline_question import QUESTION
from tests.support.reading_mutations import json_document, json_lines, toml_document
from tests.support.stored_baselines import SPEC, stored

PROMPT = Prompt(id="p", workload="w", text="t", input_ids=(1, 2))
PROFILE = """
[targets.big]
model = "/models/big"
tp = 4
trust_remote_code = false
server_args = ["--mem-fraction-static", "0.42"]
devices = ["cuda", "cpu"]
baseline = 82.0
boot_timeout_s = 900.0
workload = "default"
max_new_tokens = 256
thinking = true
[drafters.mine]
source = "/models/mine"
target = "big"
blind = false
speculation = { num_steps = 3, eagle_topk = 1, num_draft_tokens = 4 }
gate = { min_speedup = 1.1, accept_verdicts = ["profitable"], min_accept_length_by_workload = { code = 1.8 } }
"""
CHATS: list[Any] = [
    {"id": "a", "workload": "code", "prompt": "Why is the sky blue?"},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a kite?"}]},
    {"prompt": "Name three rivers of Europe, please."},
]
TOKENIZER = {
    "tokenizer.json": {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 5, "content": "</s>"}]},
    "tokenizer_config.json": {
        "eos_token": {"content": "</s>"}, "chat_template": "{{ messages }}<|im_end|>", "model_max_length": 10**30,
        "added_tokens_decoder": {"7": {"content": "<|im_end|>"}},
    },
    "generation_config.json": {"eos_token_id": [5, 7], "temperature": 0.6},
}  # fmt: skip
INFO = {
    "version": "0.5.23", "model_path": "/m", "dtype": "float32", "decode_log_interval": 40, "host": "127.0.0.1",
    "trust_remote_code": False, "speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "/d",
    "speculative_num_steps": 2, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 3,
    "speculative_accept_threshold_single": 1.0, "speculative_accept_threshold_acc": 1.0, "port": 30000,
    "internal_states": [{"avg_spec_accept_length": 1.5, "memory_usage": {"weight": 0.5}, "speculative_num_steps": 2}],
}  # fmt: skip
CHUNK = {
    "text": "a b c", "output_ids": [5, 6, 7, 8, 9],
    "meta_info": {
        "completion_tokens": 5, "prompt_tokens": 2, "cached_tokens": 0, "finish_reason": {"type": "length"},
        "spec_verify_ct": 3, "spec_num_correct_drafts": 1, "spec_correct_drafts_histogram": [2, 1, 0],
        "spec_accept_length": 1.5, "e2e_latency": 0.5,
        "output_top_logprobs": [[[-0.1, 5, None], [-1.5, 6, None]]],
        "input_token_logprobs": [[None, 2, None], [-0.2, 5, None]],
        "input_top_logprobs": [None, [[-0.2, 5, None]]],
    },
}  # fmt: skip
LOADS = {"loads": [{"dp_rank": 0, "total_prefill_uncached_tokens": 1200}]}
TOKENS = {"tokens": [1, 2, 3], "count": 3}


@dataclass(frozen=True, slots=True)
class Edge:
    """One kind of input: ``good`` makes a document of it, ``read`` puts one in place and does what a run would do.

    A good document is a text (TOML), a list (JSON lines) or else one JSON value. ``read`` returns whether it was
    accepted. A :class:`SpecprobeError` is a refusal, and any other exception a fault.
    """

    name: str
    good: Callable[[], Any]
    read: Callable[[Path, bytes], bool]

    def spoiled(self, seed: str) -> bytes:
        """Return a hostile version of the good document: one seed, one version."""
        chance, document = random.Random(f"{self.name} {seed}"), self.good()  # noqa: S311 - inputs of a test
        if isinstance(document, str):
            return toml_document(chance, document)
        return json_lines(chance, document) if isinstance(document, list) else json_document(chance, document)

    def whole(self) -> bytes:
        """Return the good document itself."""
        document = self.good()
        lines = document if isinstance(document, list) else [document]
        return (document if isinstance(document, str) else "\n".join(map(json.dumps, lines))).encode()


def outcome(edge: Edge, seed: str, folder: Path) -> tuple[str, bytes]:
    """Return ``accepted`` or ``refused``, and the input; raise whatever a user should not have seen.

    ``folder`` is the edge's own, and is used again for its next input.
    """
    body = edge.spoiled(seed)
    try:
        return ("accepted" if edge.read(folder, body) else "refused"), body
    except SpecprobeError as error:
        refusal = error
    assert refusal.culprit in CULPRITS
    assert refusal.fix
    str(refusal).encode()
    return "refused", body


def _profile(folder: Path, body: bytes) -> bool:
    (folder / "specprobe.toml").write_bytes(body)
    known = load_profiles(folder)
    for name in known.drafters:
        profile = known.get(name)
        ServerSpec(
            model=profile.target.model,
            drafter=Path(profile.drafter.source),
            speculation=profile.drafter.speculation,
            tp=profile.target.tp,
            server_args=profile.target.server_args,
        )
        repr(profile).encode()
    return True


def _workload(folder: Path, body: bytes) -> bool:
    (folder / "w.jsonl").write_bytes(body)
    loaded = load_workload("w.jsonl", root=folder)
    loaded.prompts(lambda messages: tuple(json.dumps(messages).encode()))
    loaded.first(2)
    return True


def _drafter(name: str) -> Callable[[Path, bytes], bool]:
    def read(folder: Path, body: bytes) -> bool:
        _pair(folder)
        (folder / "d" / name).write_bytes(body)
        good = _shown(folder, "d", "t")
        stage(folder / "d", cache=folder / "cache", target_positions=4096)
        return good

    return read


def _target(name: str) -> Callable[[Path, bytes], bool]:
    def read(folder: Path, body: bytes) -> bool:
        _pair(folder)
        (folder / "t" / name).write_bytes(body)
        good = _shown(folder, "d", "t")
        return _command("init", str(folder / "d"), str(folder / "t"), "--output", "-") != 2 and good

    return read


def _pair(folder: Path) -> None:
    """Put a good drafter and a good target there, over what the last input left."""
    for name, made in (("d", DRAFTER), ("t", TARGET)):
        shutil.rmtree(folder / name, ignore_errors=True)
        made.save(folder / name)


def _shown(folder: Path, drafter: str, target: str) -> bool:
    """Inspect, print and diff; return whether the files were good."""
    words = ["inspect", str(folder / drafter), "--target", str(folder / target)]
    codes = [_command(*words, "--all"), _command(*words, "--json")]
    codes.append(_command("diff", str(folder / drafter), str(folder / drafter)))
    return codes == [0, 0, 0]


def _command(*words: str) -> int:
    """Run ``specprobe``; what it prints must be text that a terminal takes."""
    out, err = io.BytesIO(), io.BytesIO()
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(out, encoding="utf-8")) as stdout,
        contextlib.redirect_stderr(io.TextIOWrapper(err, encoding="utf-8")) as stderr,
    ):
        code = main(words)
        stdout.flush()
        stderr.flush()
    assert code in {0, 1, 2, 10, 11}
    assert code != 2 or b"culprit: " in err.getvalue()
    assert b"Traceback" not in out.getvalue() + err.getvalue()
    return code


def _header(folder: Path, body: bytes) -> bool:
    _pair(folder)
    path = folder / "d" / "model.safetensors"
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    path.write_bytes(len(body).to_bytes(8, "little") + body + whole[8 + size :])
    return _shown(folder, "d", "t")


def _report(folder: Path, body: bytes) -> bool:
    (folder / "report.json").write_bytes(body)
    codes = [_command("report", str(folder), "--format", kind) for kind in ("terminal", "markdown", "html", "json")]
    codes.append(_command("compare", str(folder), str(folder)))
    return codes[:4] == [0] * 4


def _history(folder: Path, body: bytes) -> bool:
    (folder / history.NAME).write_bytes(body)
    codes = [_command("history", str(folder), *words) for words in ((), ("--json",), ("--last", "1"))]
    codes.append(_command("compare", "00000000", "11111111", "--history", str(folder)))
    return codes[:3] == [0] * 3 and not history.read(folder).skipped


def _baselines(folder: Path, body: bytes) -> bool:
    (folder / baselines.NAME).write_bytes(body)
    found = StoredBaselines(folder, PhaseLog("aq", say=lambda _: None)).find(SPEC, QUESTION)
    return found is not None or not journal.read(folder / baselines.NAME, schema=1).skipped


def _record(folder: Path, body: bytes) -> bool:
    with _state(folder) as state:
        private.write(state / "servers" / f"{'0' * 32}.json", body)
        owned = ownership._read(next((state / "servers").iterdir()))
        assert ownership.servers() == (), "no process of this boot runs"
        _command("servers")
        _command("servers", "--json")
        if owned is not None:
            json.dumps(servers.row(owned), allow_nan=False)
            printable("\n".join(servers._lines(owned))).encode()
        return owned is not None


def _times(folder: Path, body: bytes) -> bool:
    with _state(folder) as state:
        private.write(state / "boot-times.json", body)
        usual = boot_times.usual_s(SPEC)
        boot_times.remember(SPEC, 12.0)
        assert boot_times.usual_s(SPEC) == 12.0
        return usual is not None


@contextmanager
def _state(folder: Path) -> Iterator[Path]:
    before = os.environ.get("SPECPROBE_STATE_DIR")
    os.environ["SPECPROBE_STATE_DIR"] = str(folder / "state")
    private.folder(folder / "state")
    private.folder(folder / "state" / "servers")
    try:
        yield folder / "state"
    finally:
        os.environ.pop("SPECPROBE_STATE_DIR")
        if before is not None:
            os.environ["SPECPROBE_STATE_DIR"] = before


def _good_record() -> dict[str, Any]:
    me = read_process(os.getpid())
    assert me is not None
    return {
        "marker": "0" * 32, "pid": me.pid, "start_time": me.start_time, "owner_pid": 1, "owner_start_time": 6,
        "host": os.uname().nodename, "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "port": 30000, "label": "mine", "log_path": "/log",
        "scratch": str(ownership.scratch_dir("0" * 32)), "created": 1.7e9,
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino, "device": "cpu", "gpus": ["GPU-1"],
        "drafter": "/d", "command": ["python", "-m", "sglang.launch_server"], "scrubbed": ["A"],
        "environment": {"OMP_NUM_THREADS": "2"},
    }  # fmt: skip


def _manifest(folder: Path, body: bytes) -> bool:
    _pair(folder)
    cache = folder / "cache"
    made = stage(folder / "d", cache=cache, target_positions=None)
    (made.path / MANIFEST).write_bytes(body)
    prune(cache)
    again = stage(folder / "d", cache=cache, target_positions=None)
    same = (again.path / MANIFEST).read_bytes() == body
    (again.path / MANIFEST).write_bytes(body)
    prune(cache, now=1e10)
    return same


@cache
def _good_manifest() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        made = stage(DRAFTER.save(Path(folder) / "d"), cache=Path(folder) / "cache", target_positions=None)
        return json.loads((made.path / MANIFEST).read_bytes())


class _Pieces(httpx.SyncByteStream):
    """An answer that arrives in pieces, as over a socket."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        yield from (self._body[at : at + 65536] for at in range(0, len(self._body), 65536))


@contextmanager
def _client(body: bytes) -> Iterator[Client]:
    """A client of a server that answers everything with one body."""
    with Client("http://127.0.0.1:1") as client:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=_Pieces(body)))
        client._http.close()
        client._http = httpx.Client(base_url=client.url, transport=transport)
        yield client


def _info(_: Path, body: bytes) -> bool:
    with _client(body) as client:
        info = client.server_info()
    good = ServerInfo.parse(json.loads(json.dumps(INFO)))
    assert good.decode_log_interval
    assert info.decode_log_interval
    spec = ServerSpec(
        model="/m", drafter=Path("/d"), speculation=Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
    )
    canary = _canary()
    shown: list[Finding] = []
    for scrubbed in ((), None):
        shown += prove(info, spec=spec, log_text="", canary=canary, scrubbed=scrubbed)
    for finding in shown:
        json.dumps(asdict(finding), allow_nan=False)
        finding.line().encode()
    json.dumps([differences(good, info), info.effective()], allow_nan=False)
    return True


def _canary() -> Generation:
    with _client(_stream(json.dumps(CHUNK).encode())) as client:
        return client.generate(PROMPT, max_new_tokens=5, ignore_eos=False)


def _stream(chunk: bytes) -> bytes:
    return b"data: " + chunk.replace(b"\n", b" ") + b"\n\ndata: [DONE]\n\n"


def _generate(_: Path, body: bytes) -> bool:
    with _client(_stream(body)) as client:
        made = client.generate(PROMPT, max_new_tokens=5, ignore_eos=False)
    other = _canary()
    acceptance = measure_acceptance([made, replace(other, prompt_id="q"), replace(other, prompt_id="r")], depth=2)
    json.dumps(acceptance_of(acceptance).document(), allow_nan=False)
    return True


def _logprobs(_: Path, body: bytes) -> bool:
    with _client(body) as client:
        best = client.best_tokens([1, 2])
        gaps = client.gaps_along([1, 2], [5])
    assert best.gap >= 0 or best.gap < 0
    return bool(gaps)


def _tokens(_: Path, body: bytes) -> bool:
    with _client(body) as client:
        return bool(client.tokenize_chat([{"role": "user", "content": "a"}]))


def _loads(_: Path, body: bytes) -> bool:
    with _client(body) as client:
        client.set_internal_state("a", 1) if body.startswith(b"[") else None
        return client.prefilled_tokens() is not None


DRAFTER, TARGET = build.llama(), build.target()


@cache
def _good_header() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        whole = (DRAFTER.save(Path(folder)) / "model.safetensors").read_bytes()
    return json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])


INDEX = {"metadata": {"total_size": 5}, "weight_map": dict.fromkeys(DRAFTER.tensors, "model.safetensors")}


@cache
def _good_report() -> dict[str, Any]:
    return simulated_reports.report(simulated_reports.entry(simulated_reports.World()))


@cache
def _good_history() -> list[Any]:
    rng, world = np.random.default_rng(3), simulated_history.World(prompts=4)
    return [world.run(rng, at).to_json() for at in range(8)]


EDGES = (
    Edge("profile", lambda: PROFILE, _profile),
    Edge("workload", lambda: CHATS, _workload),
    Edge("drafter config", lambda: DRAFTER.config, _drafter("config.json")),
    Edge("target config", lambda: TARGET.config, _target("config.json")),
    Edge("weight index", lambda: INDEX, _drafter("model.safetensors.index.json")),
    Edge("safetensors header", _good_header, _header),
    *(Edge(name, partial(TOKENIZER.get, name), _target(name)) for name in TOKENIZER),
    Edge("report.json", _good_report, _report),
    Edge("history.jsonl", _good_history, _history),
    Edge("baselines.jsonl", lambda: [stored().to_json(), stored(2).to_json()], _baselines),
    Edge("ownership record", _good_record, _record),
    Edge("boot times", lambda: {boot_times._key(SPEC): 12.5, "1" * 24: 30.0}, _times),
    Edge("staged manifest", _good_manifest, _manifest),
    Edge("/server_info", lambda: INFO, _info),
    Edge("/generate", lambda: CHUNK, _generate),
    Edge("log-probabilities", lambda: CHUNK, _logprobs),
    Edge("/v1/tokenize", lambda: TOKENS, _tokens),
    Edge("/v1/loads", lambda: LOADS, _loads),
)
