"""A real SGLang child on the CPU engine, and a client that records every chunk of a streamed answer."""

import collections
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pytest_specprobe.engines.cpu import environment, server_args
from pytest_specprobe.server.port import HeldPort

BOOT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a server speculates: ``num_steps / topk / num_draft_tokens``."""

    num_steps: int
    topk: int = 1
    tokens: int

    @property
    def depth(self) -> int:
        """D, the most drafts that a round can accept."""
        return min(self.num_steps, self.tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One finished request: its output ids and how they arrived.

    ``chunks`` are the tokens of each arrival. The first is the prefill's one token; each other is one round's,
    unless the server coalesced some. ``histogram[i]`` counts rounds with i accepted drafts; it also counts drafts
    past the end of the answer, which no arrival shows.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    chunks: tuple[int, ...]
    histogram: tuple[int, ...]
    cached_tokens: int
    stopped: bool

    @property
    def accepted(self) -> int:
        """Accepted drafts of all rounds."""
        return sum(i * n for i, n in enumerate(self.histogram))

    @property
    def coalesced(self) -> bool:
        """Whether some arrival carried more than one round."""
        return len(self.chunks) - 1 != sum(self.histogram)

    def rounds(self) -> list[tuple[int, int]]:
        """Return (output tokens committed before, accepted drafts) of each round; only if nothing coalesced."""
        assert not self.coalesced
        starts = list(itertools.accumulate(self.chunks))[:-1]
        accepted = [tokens - 1 for tokens in self.chunks[1:]]
        if accepted:
            accepted[-1] = self.accepted - sum(accepted[:-1])
        counts = collections.Counter(accepted)
        assert tuple(counts[i] for i in range(len(self.histogram))) == self.histogram
        return list(zip(starts, accepted, strict=True))


@dataclass(frozen=True, slots=True)
class Server:
    """A booted server; ``log`` is where its output goes."""

    url: str
    log: Path
    speculative: bool

    def generate(
        self, prompts: Sequence[Sequence[int]], *, tokens: int, concurrency: int = 1, ignore_eos: bool = True
    ) -> list[Answer]:
        """Decode greedily, ``concurrency`` requests at a time; answers come in the order of the prompts."""
        with httpx.Client(base_url=self.url, timeout=300) as client, ThreadPoolExecutor(concurrency) as pool:

            def one(prompt: Sequence[int]) -> Answer:
                return self._stream(client, prompt, tokens=tokens, ignore_eos=ignore_eos)

            return list(pool.map(one, prompts))

    def flush(self) -> None:
        """Empty the prefix cache."""
        httpx.post(f"{self.url}/flush_cache", params={"timeout": 30}, timeout=60).raise_for_status()

    def _stream(self, client: httpx.Client, prompt: Sequence[int], *, tokens: int, ignore_eos: bool) -> Answer:
        body = {
            "input_ids": list(prompt),
            "stream": True,
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": ignore_eos},
        }
        sizes: list[int] = []
        event: dict[str, Any] = {}
        with client.stream("POST", "/generate", json=body) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                sizes.append(event["meta_info"]["completion_tokens"] - sum(sizes))
        meta, output = event["meta_info"], event["output_ids"]
        histogram = meta.get("spec_correct_drafts_histogram", [])
        answer = Answer(
            prompt=tuple(prompt),
            output=tuple(output),
            chunks=tuple(size for size in sizes if size),
            histogram=tuple(histogram),
            cached_tokens=meta["cached_tokens"],
            stopped=meta["finish_reason"]["type"] == "stop",
        )
        assert len(output) == meta["completion_tokens"] == sum(sizes)
        assert sum(histogram) == meta.get("spec_verify_ct", 0)
        assert answer.accepted == meta.get("spec_num_correct_drafts", 0)
        return answer


@contextlib.contextmanager
def serve(
    target: Path, *extra: str, drafter: Path | None = None, shape: Shape | None = None, log: Path
) -> Iterator[Server]:
    """Boot a server on a port that is held for it, and take its whole process group down at the end."""
    with HeldPort.take() as held:
        yield from _serve(target, *extra, drafter=drafter, shape=shape, log=log, port=held.number)


def _serve(
    target: Path, *extra: str, drafter: Path | None, shape: Shape | None, log: Path, port: int
) -> Iterator[Server]:
    mla = "kv_lora_rank" in json.loads((target / "config.json").read_text())
    command = [
        *(sys.executable, "-m", "sglang.launch_server", "--model-path", str(target)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *server_args(speculative=drafter is not None, mla=mla),
        *extra,
    ]
    if drafter is not None and shape is not None:
        command += [
            *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(drafter)),
            *("--speculative-num-steps", str(shape.num_steps)),
            *("--speculative-eagle-topk", str(shape.topk)),
            *("--speculative-num-draft-tokens", str(shape.tokens)),
        ]
    env = {**os.environ, **environment(os.environ)}
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(child, url, log)
        yield Server(url, log, drafter is not None)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait(child: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise AssertionError(f"server exited with {child.returncode}:\n{tail(log)}")
        # Not /health: SGLang answers it before its own warm-up request is through.
        if "The server is fired up and ready to roll!" in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise AssertionError(f"server at {url} not ready in {BOOT_S:.0f} s:\n{tail(log)}")


def tail(log: Path, lines: int = 40) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
