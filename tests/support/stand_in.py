"""A stand-in for two running SGLang servers, of which one speculates: whole runs of the product in seconds.

It serves what an attached probe asks for, over real HTTP: made-up but fixed texts, accepted drafts and times. What
the servers of a drafter really do is tested on SGLang; this is for what pytest and its plugins make of a probe.
"""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROMPTS = 26
ROUND_S, PLAIN_S = 0.0015, 0.001
SPECULATIVE = {
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": str(FIXTURES / "scratch_k25_mini"),
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
}
PROFILE = """
[drafters.attached]
source = "fixtures://scratch_k25_mini"
target = "mini_k25"
workload = "few.jsonl"
speculation = {{ num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }}
gate = {{ {gate}max_regression = {limit}, accept_verdicts = ["profitable", "finetune", "verify-bound", "undecided"] }}
"""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # chunks that wait for each other's acknowledgement would arrive in bunches
    disable_nagle_algorithm = True
    speculates = True

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        info = {"version": "0.5.23", "model_path": str(FIXTURES / "mini_k25"), "dtype": "float32"}
        self.answer(info | (SPECULATIVE if self.speculates else {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/v1/tokenize":
            self.answer({"tokens": list(body["messages"][0]["content"].encode())})
        elif self.path == "/generate":
            self.generate(body["input_ids"], body["sampling_params"])
        else:
            self.answer({})

    def generate(self, prompt: list[int], asked: dict[str, Any]) -> None:
        chance = random.Random(repr(prompt))  # noqa: S311 - texts, not secrets
        text = [chance.randrange(1000) for _ in range(4096)]
        drafts = [min(int(chance.expovariate(0.4)), 2) for _ in range(4096)]
        total = asked["max_new_tokens"] if asked["ignore_eos"] else min(16 + prompt[-1] % 8, asked["max_new_tokens"])
        self.send_response(200)
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        start, done, rounds, histogram = time.perf_counter(), 1, 0, [0, 0, 0]
        while True:
            meta: dict[str, Any] = {"prompt_tokens": len(prompt), "cached_tokens": 0, "completion_tokens": done}
            meta["finish_reason"] = {"type": "length"} if done == total else None
            if self.speculates:
                meta |= {
                    "spec_verify_ct": rounds,
                    "spec_num_correct_drafts": histogram[1] + 2 * histogram[2],
                    "spec_correct_drafts_histogram": list(histogram),
                }
            chunk = {"text": " ".join(map(str, text[:done])), "output_ids": text[:done], "meta_info": meta}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
            if done == total:
                break
            accepted = drafts[rounds] if self.speculates else 0
            rounds += 1
            histogram[accepted] += 1
            done = min(done + accepted + 1, total)
            time.sleep(max(0.0, start + rounds * (ROUND_S if self.speculates else PLAIN_S) - time.perf_counter()))
        self.wfile.write(b"data: [DONE]\n\n")


class Plain(Handler):
    speculates = False


@contextmanager
def serving(handler: type[Handler]) -> Iterator[str]:
    """Serve until the block ends; give the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_profile(folder: Path, *, limit: float = 0.0, gate: str = "") -> None:
    """Write the profile ``attached`` and its prompts; ``gate`` is one more condition, as TOML."""
    (folder / "specprobe.toml").write_text(PROFILE.format(limit=limit, gate=f"{gate}, " if gate else ""))
    prompts = [{"id": f"p{i}", "workload": "ab"[i % 2], "prompt": f"Why {'so ' * i}?"} for i in range(PROMPTS)]
    (folder / "few.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
