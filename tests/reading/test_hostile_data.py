"""Data of others at every edge that reads it: one named error with its culprit, or what is not usable left out."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.checkpoint.files.read import load_drafter, load_target
from pytest_specprobe.cli import main
from pytest_specprobe.errors import CheckpointError, MeasurementError, ProfileError
from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.profiles import load_profiles
from pytest_specprobe.report.read import read_report
from pytest_specprobe.report.store import history, journal
from pytest_specprobe.server import boot_times
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.staging import stage
from pytest_specprobe.staging.prune import prune
from tests.support import checkpoint_builder as build
from tests.support.stand_in import Handler, serving

pytestmark = pytest.mark.timeout(20)
DEEP = "[" * 100_000
HALF_DEEP = '{"a":' * 700 + "1" + "}" * 700
LONG = "1" + "0" * 399
SURROGATE = '"\\ud800"'
SPEC = ServerSpec(model="/m", device="cpu")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state"
    (path / "servers").mkdir(parents=True)
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(path))
    return path


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD: dict[str, Callable[[Path], object]] = {"fifo": os.mkfifo, "folder": Path.mkdir, "device": _link_to_device}


@pytest.fixture(params=ODD)
def odd(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    """Put something in the place of a file: opening or reading it must neither wait nor fill the memory."""

    def put(path: Path) -> None:
        path.unlink(missing_ok=True)
        ODD[request.param](path)

    return put


@pytest.mark.parametrize(
    "text", [DEEP, HALF_DEEP, LONG, SURROGATE, f'{{"pid": {LONG}}}', f'{{"marker": {SURROGATE}}}']
)
def test_a_state_file_that_is_not_ours_counts_as_none(state: Path, text: str) -> None:
    for name in ("servers/0.json", "boot-times.json"):
        (state / name).write_text(text)
    assert ownership.servers() == ()
    assert ownership.reap() == ()
    ownership.forget("0")
    assert boot_times.usual_s(SPEC) is None
    boot_times.remember(SPEC, 12.0)
    assert boot_times.usual_s(SPEC) == 12.0


def test_a_state_file_that_is_no_file_counts_as_none(state: Path, odd: Callable[[Path], object]) -> None:
    for name in ("servers/0.json", "boot-times.json"):
        odd(state / name)
    assert ownership.servers() == ()
    assert boot_times.usual_s(SPEC) is None


@pytest.mark.parametrize("text", [DEEP, HALF_DEEP, SURROGATE, f'{{"files": {LONG}}}'])
def test_a_manifest_that_cannot_be_read_is_no_manifest(tmp_path: Path, text: str) -> None:
    source = build.llama().save(tmp_path / "drafter")
    staged = stage(source, cache=tmp_path / "cache", target_positions=None)
    (staged.path / "specprobe-staged.json").write_text(text)
    assert prune(tmp_path / "cache", now=1e10) == ()
    again = stage(source, cache=tmp_path / "cache", target_positions=None)
    assert json.loads((again.path / "specprobe-staged.json").read_bytes())["files"]


def test_a_manifest_that_is_no_file_is_no_manifest(tmp_path: Path, odd: Callable[[Path], object]) -> None:
    source = build.llama().save(tmp_path / "drafter")
    staged = stage(source, cache=tmp_path / "cache", target_positions=None)
    odd(staged.path / "specprobe-staged.json")
    assert prune(tmp_path / "cache", now=1e10) == ()
    again = stage(source, cache=tmp_path / "cache", target_positions=None)
    assert json.loads((again.path / "specprobe-staged.json").read_bytes())["files"]


@pytest.mark.parametrize("content", [LONG, SURROGATE, DEEP, HALF_DEEP])
def test_a_workload_is_one_error_with_its_line_and_culprit(tmp_path: Path, content: str) -> None:
    (tmp_path / "w.jsonl").write_text('{"prompt": "a cat"}\n{"prompt": ' + content + "}\n")
    with pytest.raises(ProfileError, match=r"w\.jsonl:2") as caught:
        load_workload("w.jsonl", root=tmp_path)
    assert caught.value.culprit == "workload"


def test_a_workload_that_is_no_file(tmp_path: Path, odd: Callable[[Path], object]) -> None:
    odd(tmp_path / "w.jsonl")
    with pytest.raises(ProfileError, match="not a file"):
        load_workload("w.jsonl", root=tmp_path)


@pytest.mark.parametrize("name", ["specprobe.toml", "pyproject.toml"])
def test_a_profile_that_is_no_file(tmp_path: Path, name: str, odd: Callable[[Path], object]) -> None:
    odd(tmp_path / name)
    with pytest.raises(ProfileError, match="not a file"):
        load_profiles(tmp_path)


DOTTED = ".".join("a" * 100_000)
TOML = {
    "a dotted key": (f"{DOTTED} = 1", "parts"),
    "a dotted table": (f"[{DOTTED}]", "parts"),
    "an inline dotted key": (f"a = {{ {DOTTED} = 1 }}", "parts"),
    "quoted parts": ("x." + ".".join(['"a"'] * 10_000) + " = 1", "parts"),
    "deep arrays": (f"a = {DEEP}", "deep"),
    "deep tables": ("a = " + "{a=" * 50_000, "deep"),
    "digits": (f"[targets.t]\nmodel = 'm'\ntp = {LONG}", "digits"),
    "more digits": (f"a = {'1' * 100_000}", "digits"),
    "not a number": ("[drafters.d]\nsource = 's'\ntarget = 't'\ngate = { min_speedup = nan }", "not finite"),
    "infinite": ("[targets.t]\nmodel = 'm'\nboot_timeout_s = inf", "not finite"),
    "no UTF-8": ("a = 'caf\udce9'", "UTF-8"),
    "too large": ("# " + "x" * (1 << 20), "larger than 1 MiB"),
    "tool is no table": ("tool = 1", "tool"),
}


@pytest.mark.parametrize("name", TOML)
@pytest.mark.parametrize("file", ["specprobe.toml", "pyproject.toml"])
def test_a_profile_is_one_error(tmp_path: Path, name: str, file: str) -> None:
    text, said = TOML[name]
    if file == "pyproject.toml":
        text = text.replace("[targets", "[tool.specprobe.targets").replace("[drafters", "[tool.specprobe.drafters")
    (tmp_path / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ProfileError, match=said) as caught:
        load_profiles(tmp_path)
    assert file in str(caught.value)


def test_other_tools_may_say_what_they_like_in_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.other]\nlimit = inf\nseed = {LONG}\nday = 2026-01-01\n")
    assert load_profiles(tmp_path).drafters


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("body", [HALF_DEEP, f'{{"hidden_size": {LONG}}}', f'{{"model_type": {SURROGATE}}}'])
def test_a_config_or_index_is_one_error(tmp_path: Path, file: str, body: str) -> None:
    drafter, target = build.llama().save(tmp_path / "d"), build.target().save(tmp_path / "t")
    for folder, load in ((drafter, load_drafter), (target, load_target)):
        (folder / file).write_text(body)
        with pytest.raises(CheckpointError) as caught:
            load(folder)
        assert caught.value.finding_id == "file.bad-json"


def test_a_tokenizer_file_that_is_none_counts_as_absent(tmp_path: Path, odd: Callable[[Path], object]) -> None:
    target = build.target().save(tmp_path / "t")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "tiktoken.model"):
        odd(target / name)
    assert load_target(target).vocab_rows


def test_a_report_or_history_that_is_no_file(
    tmp_path: Path, odd: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("report.json", "history.jsonl"):
        odd(tmp_path / name)
    assert main(["report", str(tmp_path)]) == 2
    assert main(["history", str(tmp_path)]) == 2
    assert main(["compare", "01234567", "89abcdef", "--history", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.count("culprit") == 3


@pytest.mark.parametrize(
    "body", [DEEP, HALF_DEEP, f'{{"schema": {LONG}}}', f'{{"schema": 1, "x": {SURROGATE}}}', "NaN"]
)
def test_a_report_is_one_error(tmp_path: Path, body: str) -> None:
    (tmp_path / "report.json").write_text(body)
    with pytest.raises(ProfileError):
        read_report(tmp_path)


@pytest.mark.parametrize("body", [DEEP, HALF_DEEP, f'{{"schema": 1, "rows": {LONG}}}', f'{{"schema": {SURROGATE}}}'])
def test_a_line_of_the_history_costs_itself_alone(tmp_path: Path, body: str) -> None:
    path = tmp_path / history.NAME
    journal.append(path, {"schema": 1, "mine": True})
    with path.open("a") as file:
        file.write(body + "\n")
    journal.append(path, {"schema": 1, "mine": True})
    read = journal.read(path, schema=1)
    assert len(read.lines) == 2
    (skipped,) = read.skipped
    assert f"{path}:2" in skipped
    assert len(skipped) < 400


class Hostile(Handler):
    """Answers every request with one body."""

    body = b""

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def do_POST(self) -> None:  # noqa: N802 - the base class calls it so
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(Hostile) as url, Client(url) as made:
        yield made


INFO: dict[str, Any] = {"version": "0.5.23", "model_path": "/m"}


@pytest.mark.parametrize("value", [HALF_DEEP, DEEP, '"' + "\\ud800" * 10 + '"'])
def test_an_answer_is_one_error(client: Client, value: str) -> None:
    Hostile.body = json.dumps(INFO | {"x": 0}).replace(": 0}", f": {value}}}").encode()
    with pytest.raises(MeasurementError, match="server_info"):
        client.server_info()
    Hostile.body = f'{{"tokens": [1], "x": {value}}}'.encode()
    with pytest.raises(MeasurementError, match="tokenize"):
        client.tokenize_chat([])
    Hostile.body = f'data: {{"meta_info": {value}}}\n\ndata: [DONE]\n\n'.encode()
    prompt = Prompt(id="p", workload="w", text="t", input_ids=(1,))
    with pytest.raises(MeasurementError):
        client.generate(prompt, max_new_tokens=1, ignore_eos=False)


@pytest.mark.parametrize("digits", [LONG, "1" * 5000])
def test_a_count_that_no_float_holds_is_never_used(client: Client, digits: str) -> None:
    for name in ("speculative_num_steps", "speculative_accept_threshold_acc"):
        Hostile.body = json.dumps(INFO | {name: 0}).replace(": 0}", f": {digits}}}").encode()
        with pytest.raises(MeasurementError, match=name):
            client.server_info()
    Hostile.body = f'{{"loads": [{{"total_prefill_uncached_tokens": {digits}}}]}}'.encode()
    assert client.prefilled_tokens() is None
    Hostile.body = f'{{"tokens": [{digits}]}}'.encode()
    with pytest.raises(MeasurementError, match="token ids"):
        client.tokenize_chat([])
    counts = f'"completion_tokens": 1, "prompt_tokens": {digits}, "cached_tokens": 0'
    meta = f'{{{counts}, "finish_reason": {{"type": "stop"}}}}'
    Hostile.body = f'data: {{"output_ids": [1], "text": "a", "meta_info": {meta}}}\n\ndata: [DONE]\n\n'.encode()
    prompt = Prompt(id="p", workload="w", text="t", input_ids=(1,))
    with pytest.raises(MeasurementError, match="prompt_tokens"):
        client.generate(prompt, max_new_tokens=1, ignore_eos=False)


@pytest.mark.parametrize("loads", ["[7]", "[null]", '["a"]', "[[]]", "{}", "7"])
def test_loads_of_another_shape_say_nothing(client: Client, loads: str) -> None:
    Hostile.body = f'{{"loads": {loads}}}'.encode()
    assert client.prefilled_tokens() is None


@pytest.mark.parametrize("role", ["[]", "{}", "7", '"' + "x" * 5000 + '"'])
def test_a_role_that_is_none_is_one_short_error(tmp_path: Path, role: str) -> None:
    line = f'{{"messages": [{{"role": {role}, "content": "a"}}]}}\n'
    (tmp_path / "w.jsonl").write_text(line + '{"prompt": "a cat"}\n')
    with pytest.raises(ProfileError, match=r"role .* is none of") as caught:
        load_workload("w.jsonl", root=tmp_path)
    assert len(caught.value.problems[0]) < 300


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", "\ud83d\ude00" * 300, 7, None])
def test_a_manifest_of_a_source_that_no_file_can_be_is_no_error(tmp_path: Path, source: Any) -> None:
    staged = stage(build.llama().save(tmp_path / "drafter"), cache=tmp_path / "cache", target_positions=None)
    manifest = staged.path / "specprobe-staged.json"
    said = json.loads(manifest.read_bytes())
    manifest.unlink()
    manifest.write_text(json.dumps(said | {"source": source}))
    prune(tmp_path / "cache", now=1e10)
