"""A stdlib stand-in for SGLang's launcher, for faults that a real server cannot be made to show.

Started as ``python -m sglang.launch_server ...`` would be; behaves as the JSON in ``FAKE_SGLANG`` says:

    info       more of what /server_info says
    message    why an ``aborted`` request was cut off
    flood      MB of text without a line end to print after the log
    log        text to print first                  exit      exit code after the log (the server dies)
    silent     True: do nothing at all, for ever    spin      True: be busy for ever, without a word
    late       seconds before it listens, as SGLang imports and loads for long
    never      True: run, but never be healthy      chatty    True: print a line every 50 ms for ever
    children   True: start a deaf, daemonised grandchild and a deaf child
    below      list of [program, first word of its command line, further words]: child processes to start
    open       True: accept requests without the key
    linger     True: stay when the port is taken, as SGLang does, with its words in the log
    tell       file for the pids of this process and its children
    count      file that gets a line with the pid for every start
    pair       True: say that it speculates as the command line asks, render chats, and answer as long as asked
    generate   list of what each /generate does in turn, the last one repeated (see ``SPOIL`` and ``Handler``)
    busy       how many /flush_cache calls are refused first
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def told(name: str, default: str) -> str:
    """A variable of this process, else of the supervisor's: only what a server needs passes to it."""
    above = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode().split("\0")
    return os.environ.get(name) or dict(entry.partition("=")[::2] for entry in above).get(name, default)


PLAN: dict[str, Any] = json.loads(told("FAKE_SGLANG", "{}"))
IDS = [5, 6, 7, 8, 9, 10]
ROUNDS = {"spec_verify_ct": 3, "spec_num_correct_drafts": 2, "spec_correct_drafts_histogram": [2, 0, 1]}
INFO = {
    "version": "0.0-fake",
    "model_path": "m",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "d",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
    "internal_states": [{"avg_spec_accept_length": 1.5}],
}
RAW = {
    "truncated": b'data: {"text": "abc", "output_',
    "garbage": b"data: {]\n\n",
    "deep": b"data: " + b"[" * 99999 + b"\n\n",
}


def old_names(_: dict[str, Any], meta: dict[str, Any]) -> None:
    meta["spec_accept_token_num"] = meta.pop("spec_num_correct_drafts")
    meta["spec_accept_histogram"] = meta.pop("spec_correct_drafts_histogram")


def error_only(full: dict[str, Any], _: dict[str, Any]) -> None:
    full.clear()
    full["error"] = {"message": "boom", "code": 400}


# What each fault does to the last chunk and its meta_info.
SPOIL: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "old-names": old_names,
    "error-chunk": error_only,
    "no-meta": lambda full, _: full.pop("meta_info"),
    "no-rounds": lambda _, meta: [meta.pop(name) for name in ROUNDS],
    "half-rounds": lambda _, meta: meta.pop("spec_num_correct_drafts"),
    "count-lies": lambda _, meta: meta.update(completion_tokens=9),
    "rewrites": lambda full, _: full.update(output_ids=[99, *IDS[1:]]),
    "negative": lambda _, meta: meta.update(spec_verify_ct=-1),
    "boolean": lambda _, meta: meta.update(spec_verify_ct=True),
    "no-cached": lambda _, meta: meta.pop("cached_tokens"),
    "float-ids": lambda full, _: full.update(output_ids=[float(i) for i in IDS]),
    "nan": lambda _, meta: meta.update(e2e_latency=float("nan")),
    "aborted": lambda _, meta: meta.update(
        finish_reason={"type": "abort", "message": PLAN.get("message", "out of memory")}
    ),
    "incremental": lambda full, _: full.update(text="cdef", output_ids=IDS[2:]),
}
SETTINGS = ("draft_model_path", "num_steps", "eagle_topk", "num_draft_tokens")
calls = {"generate": 0, "flush": 0}
totals = {"rounds": 0, "accepted": 0}


def argument(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def info() -> dict[str, Any]:
    """What /server_info says: a fixed answer, or with ``pair`` what the command line asked for."""
    if not PLAN.get("pair"):
        return INFO
    own = {"model_path": argument("--model-path"), "host": argument("--host"), "port": int(argument("--port"))}
    said: dict[str, Any] = {**INFO, **PLAN.get("info", {}), **own}
    said["trust_remote_code"] = "--trust-remote-code" in sys.argv
    if "--speculative-algorithm" not in sys.argv:
        return {key: value for key, value in said.items() if not key.startswith("speculative_")}
    path, *numbers = (argument(f"--speculative-{name.replace('_', '-')}") for name in SETTINGS)
    values = (path, *map(int, numbers))
    said["internal_states"] = [{"avg_spec_accept_length": 1 + totals["accepted"] / max(totals["rounds"], 1)}]
    return said | {f"speculative_{name}": value for name, value in zip(SETTINGS, values, strict=True)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    key = ""

    def log_message(self, *_: object) -> None:
        pass

    def refused(self) -> bool:
        if PLAN.get("open") or self.headers.get("Authorization") == f"Bearer {self.key}":
            return False
        self.answer(401, b"{}")
        return True

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if PLAN.get("never") else 200, b"")
        elif not self.refused():
            self.answer(200, json.dumps(info()).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.refused():
            return
        if self.path == "/flush_cache":
            calls["flush"] += 1
            totals.update(rounds=0, accepted=0)
            self.answer(400 if calls["flush"] <= PLAN.get("busy", 0) else 200, b"")
        elif self.path == "/generate":
            turns = PLAN.get("generate", ["good"])
            turn = turns[min(calls["generate"], len(turns) - 1)]
            calls["generate"] += 1
            with contextlib.suppress(OSError):
                self.generate(turn, json.loads(body))
        elif self.path == "/v1/tokenize" and PLAN.get("unlimited"):
            self.answer(500, b"Internal Server Error")
        elif self.path == "/v1/tokenize" and PLAN.get("pair"):
            ids = [byte % 200 for byte in body[:40]]
            self.answer(200, json.dumps({"tokens": ids, "count": len(ids)}).encode())
        else:
            self.answer(404, b"{}")

    def generate(self, turn: str, asked: dict[str, Any]) -> None:
        if turn in ("500", "redirect"):
            status, body = (500, b'{"error": "api_key=sesame went wrong"}') if turn == "500" else (307, b"")
            return self.answer(status, body, Location="http://127.0.0.1:9/generate")
        if turn in ("die", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if turn == "die" else signal.SIGSTOP)
            # A signal stops the process a moment after the call, which must not answer in that moment.
            time.sleep(1)
        if turn == "hang":
            time.sleep(3600)
        self.send_response(200)
        self.send_header("Connection", "close")
        self.close_connection = True
        self.endless("drip-headers", turn, b"X-Drip: 1\r\n")
        self.end_headers()
        self.endless("drip", turn, b":")
        self.endless("huge", turn, b"x" * 65536)
        self.event({"text": "ab", "output_ids": IDS[:2], "meta_info": self.meta(2, None)})
        if turn == "cut":
            return None
        if turn in RAW:
            self.wfile.write(RAW[turn])
            return None
        if turn == "good" and PLAN.get("pair"):
            return self.answer_as_asked(asked)
        meta: dict[str, Any] = self.meta(6, {"type": "length", "length": 6}) | ROUNDS
        full: dict[str, Any] = {"text": "abcdef", "output_ids": IDS, "meta_info": meta}
        if turn in SPOIL:
            SPOIL[turn](full, meta)
        self.event(full)
        if turn != "no-done":
            self.wfile.write(b"data: [DONE]\n\n")
        return None

    def answer_as_asked(self, asked: dict[str, Any]) -> None:
        """Go on from the first two ids, two tokens a round; a text of 24 tokens unless it must be longer."""
        wanted = asked["sampling_params"]
        total = wanted["max_new_tokens"] if wanted["ignore_eos"] else min(24, wanted["max_new_tokens"])
        total = max(total, 2)
        ids = [*IDS[:2], *((sum(asked["input_ids"]) + 7 * at * at) % 199 for at in range(2, total))]
        meta = self.meta(total, {"type": "length" if wanted["ignore_eos"] else "stop"})
        if "--speculative-algorithm" in sys.argv:
            pairs, single = divmod(total - 1, 2)
            totals["rounds"] += pairs + single
            totals["accepted"] += pairs
            meta |= {"spec_verify_ct": pairs + single, "spec_num_correct_drafts": pairs}
            meta["spec_correct_drafts_histogram"] = [single, pairs, 0]
        self.event({"text": " ".join(map(str, ids)), "output_ids": ids, "meta_info": meta})
        self.wfile.write(b"data: [DONE]\n\n")

    def endless(self, fault: str, turn: str, piece: bytes) -> None:
        while turn == fault:
            # end_headers was not called yet where the headers themselves drip.
            self.flush_headers()
            self.wfile.write(piece)
            self.wfile.flush()
            if fault != "huge":
                time.sleep(0.1)

    def meta(self, tokens: int, reason: object) -> dict[str, Any]:
        return {"prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": tokens, "finish_reason": reason}

    def event(self, value: object) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()


def deaf_children() -> list[int]:
    """Start a deaf child, and a deaf daemon whose parent is gone and whose session is its own."""
    pids = []
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    pids.append(child)
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(60)
        os.write(writer, str(daemon).encode())
        os._exit(0)
    os.waitpid(middle, 0)
    pids.append(int(os.read(reader, 32)))
    return pids


def main() -> None:
    pids = [os.getpid(), *(deaf_children() if PLAN.get("children") else [])]
    if "count" in PLAN:
        with Path(PLAN["count"]).open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    pids += [subprocess.Popen(words, executable=program).pid for program, *words in PLAN.get("below", [])]
    if "tell" in PLAN:
        partial = Path(PLAN["tell"] + ".part")
        partial.write_text(json.dumps(pids))
        partial.rename(PLAN["tell"])
    sys.stdout.write(PLAN.get("log", ""))
    for _ in range(PLAN.get("flood", 0)):
        sys.stdout.write("a://" * 250_000)
    sys.stdout.flush()
    if "exit" in PLAN:
        sys.exit(PLAN["exit"])
    while PLAN.get("silent"):
        time.sleep(60)
    while PLAN.get("spin"):
        pass
    while PLAN.get("chatty"):
        sys.stdout.write("still here\n")
        sys.stdout.flush()
        time.sleep(0.05)
    time.sleep(PLAN.get("late", 0))
    Handler.key = json.loads(Path(argument("--config")).read_text().partition(":")[2])
    address = (argument("--host"), int(argument("--port")))
    try:
        server = ThreadingHTTPServer(address, Handler)
    except OSError as error:
        if not PLAN.get("linger"):
            raise
        sys.stdout.write(
            f"ERROR:    [Errno 98] error while attempting to bind on address {address}: {error.strerror}\n"
        )
        sys.stdout.flush()
        time.sleep(3600)
    server.serve_forever()


main()
