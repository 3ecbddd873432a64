"""Our tok/s and accept length beside those of SGLang's own benchmark client and log, on one running server.

Run: ``SPECPROBE_API_KEY=... python -m benchmarks.beside_sglang --server http://127.0.0.1:30000 --log server.log``.

The server must speculate; it is asked and never changed. Both clients send the same token ids, greedily, one request
at a time, for the same number of tokens, in turns (ours, theirs, theirs, ours, ...), so that a drift of the machine
meets both alike. ``sglang.bench_serving`` runs under ``--python``, an interpreter that holds SGLang. It loads the
target's tokenizer, remote code included, so a tokenizer with remote code is refused without ``--trust-remote-code``.
Prints a Markdown table; ``--json FILE`` keeps the figures.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_specprobe.errors import MeasurementError, SpecprobeError
from pytest_specprobe.measure.overhead import Overhead, client_overhead
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.server.attach import API_KEY_VARIABLE, attach
from pytest_specprobe.server.http.client import Client

_LINE = re.compile(r"(Prefill) batch|Decode batch.*?accept len: ([\d.]+).*?gen throughput \(token/s\): ([\d.]+)")
_PATIENCE_S = 1800.0
# For each prompt, a text whose tokens are exactly its ids, as the server's tokenizer will make them again.
_RENDER = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=sys.argv[2] == "yes")
texts = []
for ids in json.load(sys.stdin):
    tries = [tokenizer.decode(part, skip_special_tokens=False) for part in (ids, ids[1:])]
    texts.append(next((text for text in tries if tokenizer.encode(text) == ids), None))
json.dump(texts, sys.stdout)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One client's turn.

    ``tokens`` are those after each request's first arrival, and ``decode_s`` the seconds they took, by the client's
    clock. ``own_mean`` is SGLang's running accept length since the flush before the turn. ``log_lines`` are (accept
    length, tok/s) of the server's decode lines that hold no prefill. ``printed`` is what ``bench_serving`` prints,
    ``requests`` ours: each is empty for the other client.
    """

    tokens: int
    decode_s: float
    texts: tuple[str, ...]
    own_mean: float | None
    log_lines: tuple[tuple[float, float], ...]
    printed: dict[str, float]
    requests: tuple[Generation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All turns of one comparison, and what was asked of the server."""

    version: str
    workload: str
    prompts: int
    new_tokens: int
    ours: tuple[Turn, ...]
    theirs: tuple[Turn, ...]

    @property
    def overhead(self) -> Overhead | None:
        """Return the share of our requests' wall time that is outside the server's own."""
        return client_overhead([g for turn in self.ours for g in turn.requests])

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return our decode rate over theirs, for each pair of neighbouring turns."""
        return tuple(rate([a]) / rate([b]) for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def same_texts(self) -> int:
        """Return how many of their texts are ours too: the same text is the same work."""
        own = {text for turn in self.ours for text in turn.texts}
        return sum(text in own for turn in self.theirs for text in turn.texts)

    @property
    def lengths(self) -> dict[str, float | None]:
        """Return the accept length by each definition."""
        rounds, accepted, tokens = (
            sum(getattr(g, name) or 0 for turn in self.ours for g in turn.requests)
            for name in ("rounds", "accepted", "completion_tokens")
        )
        return {
            "strict": 1 + accepted / rounds,
            "tokens_per_round": tokens / rounds,
            "server_info_after_ours": _mean([turn.own_mean for turn in self.ours]),
            "server_info_after_theirs": _mean([turn.own_mean for turn in self.theirs]),
            "log": _mean([length for turn in (*self.ours, *self.theirs) for length, _ in turn.log_lines]),
        }

    def to_json(self) -> dict[str, Any]:
        """Return every figure."""
        return {
            "sglang": self.version,
            "workload": self.workload,
            "prompts": self.prompts,
            "new_tokens": self.new_tokens,
            "turns": len(self.ours) + len(self.theirs),
            "decode_tok_per_s": {
                "ours": rate(self.ours),
                "theirs": rate(self.theirs),
                "log_during_ours": log_rate(self.ours),
                "log_during_theirs": log_rate(self.theirs),
            },
            "ratio": rate(self.ours) / rate(self.theirs),
            "ratios": list(self.ratios),
            "accept_length": self.lengths,
            "same_texts": [self.same_texts, sum(len(turn.texts) for turn in self.theirs)],
            "client_overhead": self.overhead and asdict(self.overhead),
            "bench_serving": [turn.printed for turn in self.theirs],
        }


def rate(turns: Sequence[Turn]) -> float:
    """Return the decode rate of these turns in tok/s: a ratio of sums."""
    return sum(turn.tokens for turn in turns) / sum(turn.decode_s for turn in turns)


def log_rate(turns: Sequence[Turn]) -> float | None:
    """Return the decode rate that the log's lines give together, each holding the same number of rounds."""
    lines = [line for turn in turns for line in turn.log_lines]
    return sum(length for length, _ in lines) / sum(length / speed for length, speed in lines) if lines else None


def decode_lines(text: str) -> Iterator[tuple[float, float]]:
    """Yield (accept length, tok/s) of every decode line of a log with no prefill in its interval."""
    clean = False  # the first line's interval began before this text
    for found in _LINE.finditer(text):
        if found[1]:
            clean = False
            continue
        if clean and float(found[3]) > 0:
            yield float(found[2]), float(found[3])
        clean = True


class Server:
    """The server that both clients ask, and its log if that can be read."""

    def __init__(self, client: Client, *, log: Path | None, key: str | None) -> None:
        self.client = client
        self.key = key
        self._log = log

    def end_of_log(self) -> int:
        """Return how many bytes the log has."""
        return self._log.stat().st_size if self._log else 0

    def log_lines(self, since: int) -> tuple[tuple[float, float], ...]:
        """Return the clean decode lines that the log got since it had so many bytes."""
        if self._log is None:
            return ()
        return tuple(decode_lines(self._log.read_bytes()[since:].decode("utf-8", errors="replace")))


def our_turn(server: Server, prompts: Sequence[Prompt], *, new_tokens: int) -> Turn:
    """Send every prompt through the product's own client, after one to warm up (as ``bench_serving`` does)."""
    start = server.end_of_log()
    server.client.flush()
    _, *done = [
        server.client.generate(prompt, max_new_tokens=new_tokens, ignore_eos=True)
        for prompt in (prompts[0], *prompts)
    ]
    return Turn(
        tokens=sum(g.completion_tokens - g.first_tokens for g in done),
        decode_s=sum(g.last_s - g.first_s for g in done),
        texts=tuple(g.text for g in done),
        own_mean=server.client.server_info().server_accept_length,
        log_lines=server.log_lines(start),
        printed={},
        requests=tuple(done),
    )


class Bench:
    """``sglang.bench_serving`` on the same prompts, in an interpreter that holds SGLang."""

    def __init__(self, folder: Path, *, python: str, tokenizer: str, remote_code: bool) -> None:
        if _has_remote_code(Path(tokenizer)) and not remote_code:
            raise MeasurementError(
                f"the tokenizer in {tokenizer} has remote code, which bench_serving would run unasked",
                culprit="target",
                fix="read that code, then pass --trust-remote-code",
            )
        self._folder = folder
        self._python = python
        self._tokenizer = tokenizer
        self._trust = "yes" if remote_code else "no"

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Write the prompts as texts that tokenize to exactly the same ids."""
        ids = json.dumps([list(p.input_ids) for p in prompts])
        texts = json.loads(self._run(["-c", _RENDER, self._tokenizer, self._trust], text=ids))
        lost = [p.id for p, text in zip(prompts, texts, strict=True) if text is None]
        if lost:
            raise MeasurementError(
                f"no text tokenizes to the ids of {lost[0]} and {len(lost) - 1} more: bench_serving cannot send them",
                culprit="target",
                fix="use another workload",
            )
        lines = [json.dumps({"conversations": [{"content": text}, {"content": "an answer"}]}) for text in texts]
        (self._folder / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._count = len(texts)

    def turn(self, server: Server, *, new_tokens: int) -> Turn:
        """Run it once."""
        out = self._folder / "bench.jsonl"
        out.unlink(missing_ok=True)
        start = server.end_of_log()
        server.client.flush()
        self._run(
            [
                *("-m", "sglang.bench_serving", "--backend", "sglang", "--base-url", server.client.url),
                *("--model", self._tokenizer, "--tokenizer", self._tokenizer),
                *("--dataset-name", "custom", "--dataset-path", str(self._folder / "prompts.jsonl")),
                *("--num-prompts", str(self._count), "--sharegpt-output-len", str(new_tokens)),
                *("--max-concurrency", "1", "--warmup-requests", "1", "--disable-tqdm"),
                *("--output-file", str(out), "--output-details"),
            ],
            key=server.key,
        )
        said = json.loads(out.read_text(encoding="utf-8"))
        if said["completed"] != self._count:
            raise MeasurementError(
                f"bench_serving completed {said['completed']} of {self._count} requests: {said['errors']}"[:500],
                culprit="engine",
                fix="look at the server's log",
            )
        # One entry per token after the first arrival: an arrival of several tokens spreads its gap over them.
        gaps = said["itls"]
        return Turn(
            tokens=sum(len(own) for own in gaps),
            decode_s=sum(sum(own) for own in gaps),
            texts=tuple(said["generated_texts"]),
            own_mean=said["accept_length"],
            log_lines=server.log_lines(start),
            printed={
                name: said[name] for name in ("output_throughput", "mean_tpot_ms", "mean_itl_ms", "mean_ttft_ms")
            },
            requests=(),
        )

    def _run(self, arguments: Sequence[str], *, text: str | None = None, key: str | None = None) -> str:
        env = {**os.environ, **({"OPENAI_API_KEY": key} if key else {})}
        done = subprocess.run(
            [self._python, *arguments],
            input=text, env=env, cwd=self._folder, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise MeasurementError(
                f"{' '.join(arguments[:2])[:60]} ended with {done.returncode}",
                culprit="harness",
                fix="check --python (it must hold SGLang) and --tokenizer",
                detail=done.stderr[-2000:],
            )
        return done.stdout


def compare(
    server: Server, bench: Bench, prompts: Sequence[Prompt], *, new_tokens: int, pairs: int, name: str
) -> Comparison:
    """Let both clients take turns, ``pairs`` turns each, the other one first in every second pair."""
    bench.prepare(prompts)
    ours, theirs = [], []
    for pair in range(pairs):
        for own in (True, False) if pair % 2 == 0 else (False, True):
            if own:
                ours.append(our_turn(server, prompts, new_tokens=new_tokens))
            else:
                theirs.append(bench.turn(server, new_tokens=new_tokens))
    return Comparison(
        version=server.client.version(), workload=name, prompts=len(prompts), new_tokens=new_tokens,
        ours=tuple(ours), theirs=tuple(theirs),
    )  # fmt: skip


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the Markdown table of a comparison's figures (``Comparison.to_json``)."""
    speed, length, same = found["decode_tok_per_s"], found["accept_length"], found["same_texts"]

    def against(value: float | None) -> str:
        return "" if value is None else f"{100 * (value / speed['theirs'] - 1):+.1f} %"

    yield "| who | decode tok/s | beside bench_serving | accept length | how it counts |"
    yield "| --- | --- | --- | --- | --- |"
    printed = _mean([turn["output_throughput"] for turn in found["bench_serving"]])
    clock, lines = "tokens / seconds after the first arrival", "decode lines with no prefill in their interval"
    rows: list[tuple[str, float | None, float | None, str]] = [
        ("specprobe", speed["ours"], length["strict"], f"{clock}; 1 + accepted drafts / rounds"),
        (
            "specprobe, SGLang's way",
            None,
            length["tokens_per_round"],
            "tokens / rounds: prefill's token has no round",
        ),
        ("bench_serving", speed["theirs"], length["server_info_after_theirs"], f"{clock}; what the server says"),
        ("bench_serving, printed", printed, None, "all tokens / wall time: waiting for first tokens counts"),
        (
            "the server after our turns",
            None,
            length["server_info_after_ours"],
            "mean since the flush, warm-up included",
        ),
        ("its log, our turns", speed["log_during_ours"], None, lines),
        ("its log, their turns", speed["log_during_theirs"], length["log"], f"{lines}; mean of all turns' lines"),
    ]
    for who, value, accept, how in rows:
        yield f"| {who} | {_shown(value, 1)} | {against(value)} | {_shown(accept, 2)} | {how} |"
    yield ""
    yield (
        f"SGLang {found['sglang']}, {found['prompts']} prompts of workload {found['workload']}, "
        f"{found['new_tokens']} tokens each, {found['turns']} turns. Our decode rate over theirs, turn by turn: "
        f"{', '.join(f'{r:.3f}' for r in found['ratios'])}. {same[0]} of {same[1]} of their texts are ours, letter "
        "by letter."
    )
    own = found["client_overhead"]
    if own:
        yield (
            f"Client overhead: {100 * own['share']['value']:.2f} % [{100 * own['share']['low']:.2f}, "
            f"{100 * own['share']['high']:.2f}] of a request's wall time, {1000 * own['per_request_s']:.1f} ms, "
            f"is outside the server's own ({own['requests']} requests)."
        )


def _shown(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _has_remote_code(folder: Path) -> bool:
    files = (folder / name for name in ("tokenizer_config.json", "config.json"))
    return any("auto_map" in json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file())


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beside_sglang", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "--server", required=True, metavar="URL", help=f"a running, speculating SGLang; its key in {API_KEY_VARIABLE}"
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="that server's log, for its own tok/s and accept length"
    )
    parser.add_argument(
        "--python", default=sys.executable, metavar="PATH", help="interpreter that holds SGLang (default: this one)"
    )
    parser.add_argument("--tokenizer", metavar="DIR", help="the target's directory (default: what the server says)")
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="let bench_serving run the tokenizer's remote code"
    )
    parser.add_argument(
        "--workload", default="default", metavar="NAME|FILE.jsonl", help="prompt set (default: default)"
    )
    parser.add_argument("--prompts", type=int, default=24, metavar="N", help="how many of its prompts (default: 24)")
    parser.add_argument("--new-tokens", type=int, default=96, metavar="N", help="tokens per request (default: 96)")
    parser.add_argument("--pairs", type=int, default=4, metavar="N", help="turns of each client (default: 4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, keep."""
    options = _arguments(argv)
    try:
        with attach(options.server) as attached, tempfile.TemporaryDirectory(prefix="specprobe-beside-") as folder:
            client = attached.client
            bench = Bench(
                Path(folder),
                python=options.python,
                tokenizer=options.tokenizer or client.server_info().model_path,
                remote_code=options.trust_remote_code,
            )
            workload = load_workload(options.workload, root=Path.cwd()).first(options.prompts)
            server = Server(client, log=options.log, key=os.environ.get(API_KEY_VARIABLE))
            found = compare(
                server, bench, workload.prompts(client.tokenize_chat),
                new_tokens=options.new_tokens, pairs=options.pairs, name=workload.name,
            ).to_json()  # fmt: skip
    except SpecprobeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(table(found)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
