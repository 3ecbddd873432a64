"""Servers of a simulated world, as the product meets them: its clients, what it says of a server, no process.

An adapter as ``adapter`` is: it knows the product. What a script says goes wrong goes wrong here.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytest_specprobe.errors import ServerError
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.checks.busy_machine import CpuTime
from pytest_specprobe.measure.checks.losslessness import Best
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.http.info import ServerInfo
from pytest_specprobe.server.owned import OwnedServer
from tests.characterization.world import Row, World, natural_length, request, text_of

FIXTURES = Path(__file__).parents[2] / "fixtures"
URL = "http://10.1.2.3:30000"
PLAIN_URL = "http://10.1.2.3:30001"


def _same(_: "Script", __: str, ___: str, row: Row) -> Row:
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One probe: its world, what is asked for, and what goes wrong.

    ``alter`` sees every answer (script, server, pass) and gives it back, changed or not; servers are ``drafter``,
    ``blind``, ``baseline``, ``shared`` and ``arm``; passes ``natural``, ``fixed`` and ``sampled``. ``info`` is added
    to what a server says of itself, by server. ``foreign`` are prompt tokens that others had prefilled per pass.
    ``others`` is the share of the machine that other processes use. ``gaps`` are log-probabilities below the best by
    place of a read text; ``best`` the target's gap where two texts part. ``fails`` names by server and pass the
    prompt whose request fails (the last one, where several are in flight: nothing is cancelled then).
    """

    world: World = field(default_factory=World)
    names: tuple[str, ...] = ("d",)
    worlds: Mapping[str, World] = field(default_factory=dict)
    steps: tuple[str, ...] = ("acceptance", "throughput")
    speculation: str = "2/1/3"
    gate: str = ""
    drafter: str = ""
    target: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    narrowed: bool = False
    static: tuple[Finding, ...] = ()
    problems: tuple[Any, ...] = ()
    alter: Callable[["Script", str, str, Row], Row] = _same
    info: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    foreign: int | None = 0
    others: float = 0.0
    log: str = ""
    gaps: tuple[float, ...] = (0.0,)
    best: float | None = 0.001
    dies: Mapping[str, str] = field(default_factory=dict)
    fails: Mapping[str, int] = field(default_factory=dict)
    refuses_pins: bool = False
    again: bool = False


class Machine:
    """What the servers of one script share: the clock (whole nanoseconds), and a log of what was asked of them."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.now_ns = 0
        self.lock = threading.Lock()
        self.turns: list[list[str]] = [[]]

    def seconds(self) -> float:
        return self.now_ns / 1e9

    def cpu(self, servers: Sequence[int]) -> CpuTime:
        return CpuTime(
            machine_s=self.seconds() * (2 + 8 * self.script.others), own_s=2 * self.seconds(), clock_s=self.seconds()
        )

    def calls(self) -> list[str]:
        """What was asked, turn by turn (a flush begins one); streams of one turn have no order."""
        found = []
        for turn in self.turns:
            counted = Counter(turn)
            found += [f"{call} x {counted[call]}" for call in sorted(counted)]
        return found


class Client:
    """The client of one server, as the product calls it."""

    def __init__(self, machine: Machine, name: str, kind: str, speculation: Speculation | None) -> None:
        self._machine = machine
        self._name = name
        self.kind = kind
        self.speculation = speculation
        self.url = PLAIN_URL if kind == "baseline" else URL
        self._nth: Counter[str] = Counter()
        self._prefilled = 0
        self._rounds = self._accepted = 0

    @property
    def world(self) -> World:
        script = self._machine.script
        return script.worlds.get(self._name, script.world)

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        script, machine = self._machine.script, self._machine
        i = int(prompt.id.rpartition("-")[2])
        what = "sampled" if temperature else "fixed" if ignore_eos else "natural"
        with machine.lock:
            nth = self._nth[f"{prompt.id} {what}"]
            self._nth[f"{prompt.id} {what}"] += 1
            if script.fails.get(f"{self.kind} {what}") == i:
                raise ServerError("HTTP 500", culprit="engine", fix="read the server's log")
        accept = {"baseline": None, "blind": self.world.blind}.get(self.kind, self.world.accept)
        natural = natural_length(self.world, i)
        cut = max_new_tokens if ignore_eos or max_new_tokens < natural else None
        row = request(
            self.world,
            i,
            accept=accept,
            depth=self.speculation.depth if self.speculation else 0,
            tokens=cut,
            luck=f"{self.kind} {what} {nth}",
            temperature=temperature,
        )
        row = script.alter(script, self.kind, what, {**row, "prompt_tokens": len(prompt.input_ids)})
        with machine.lock:
            machine.now_ns += round(1e9 * (row["last_s"] - row["start_s"]))
            tokens = max_new_tokens if ignore_eos else f"up to {max_new_tokens}"
            machine.turns[-1].append(f"{self.kind} {prompt.id} {tokens} at {temperature:g}")
            self._prefilled += row["prompt_tokens"]
            self._rounds += row["rounds"] or 0
            self._accepted += row["accepted"] or 0
        return Generation(**row)

    def flush(self) -> None:
        with self._machine.lock:
            self._machine.turns.append([f"{self.kind} flush"])
            self._rounds = self._accepted = 0

    def tokenize_chat(self, messages: Sequence[Mapping[str, str]], thinking: bool | None = None) -> tuple[int, ...]:
        return tuple("".join(m["content"] for m in messages).encode())

    def server_info(self) -> ServerInfo:
        script, own = self._machine.script, self.speculation
        answer: dict[str, Any] = {
            "version": "0.5.23",
            "model_path": str(FIXTURES / "mini_k25"),
            "tp_size": 1,
            "dtype": "float32",
            "device": script.device,
            "host": "127.0.0.1",
            "decode_log_interval": 10,
            "disable_radix_cache": True,
            "internal_states": [{}],
        }
        if own is not None:
            answer |= {
                "speculative_algorithm": "EAGLE3",
                "speculative_draft_model_path": "/staged/blind" if self.kind == "blind" else "/staged/drafter",
                "speculative_num_steps": own.num_steps,
                "speculative_eagle_topk": own.eagle_topk,
                "speculative_num_draft_tokens": own.num_draft_tokens,
                "speculative_accept_threshold_single": 1.0,
                "speculative_accept_threshold_acc": 1.0,
            }
            live: dict[str, Any] = {
                "speculative_num_steps": own.num_steps,
                "speculative_num_draft_tokens": own.num_draft_tokens,
            }
            if self._rounds:
                live["avg_spec_accept_length"] = 1 + self._accepted / self._rounds
            answer["internal_states"] = [live]
            answer["speculative_adaptive"] = self.kind == "shared"
        changes = dict(script.info.get(self.kind, {}))
        answer["internal_states"][0].update(changes.pop("internal", {}))
        return ServerInfo.parse(answer | changes)

    def prefilled_tokens(self) -> int | None:
        if self._machine.script.foreign is None:
            return None
        # each time it is asked, others have had as many more
        self._prefilled += self._machine.script.foreign
        return self._prefilled

    def best_tokens(self, input_ids: Sequence[int]) -> Best:
        gap = self._machine.script.best
        if gap is None:
            raise ServerError("no log-probabilities", culprit="engine", fix="none")
        # the scripts part texts at their tenth token; a prompt's length names it
        i = (len(input_ids) - 9 - len("Why so ?")) // len("very ")
        return Best((text_of(self.world, i)[9], 901), gap)

    def gaps_along(self, input_ids: Sequence[int], output_ids: Sequence[int]) -> tuple[float, ...]:
        gaps = self._machine.script.gaps
        if not gaps:
            raise ServerError("no log-probabilities", culprit="engine", fix="none")
        return tuple(gaps[at % len(gaps)] for at in range(len(output_ids)))

    def set_internal_state(self, _: str, steps: int) -> bool:
        if self._machine.script.refuses_pins:
            return False
        self.speculation = Speculation(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)
        return True

    def version(self) -> str:
        return "0.5.23"

    def healthy(self) -> bool:
        return True

    def close(self) -> None:
        pass


class Booted(OwnedServer):
    """A server of ours without a process."""

    def __init__(self, client: Client, *, device: str) -> None:
        self.client = client  # type: ignore[assignment]  # speaks for the real one
        self.url = client.url
        self.pid = None
        self.command = ("python3", "-m", "sglang.launch_server", "--port", "30000")
        self.scrubbed = ("SGLANG_SIMULATE_ACC_LEN",)
        self.environment = {"OMP_NUM_THREADS": "2"}
        self.boot_s = 12.5
        self.log_path = Path("/logs") / f"{client.kind}.log"
        self.device = device
        self._log = client._machine.script.log

    def alive(self) -> bool:
        return True

    def sockets(self) -> tuple[Any, ...]:
        return ()

    def log_text(self) -> str:
        return self._log

    def log_tail(self, lines: int = 30) -> str:
        return self._log

    def suspend(self) -> None:
        pass

    def close(self) -> None:
        pass


def attached(client: Client) -> Any:
    """A server that someone else runs, of which only the URL is known."""
    return SimpleNamespace(
        client=client,
        url=client.url,
        owned=False,
        vouched=False,
        device="",
        pid=None,
        command=None,
        scrubbed=(),
        environment=None,
        boot_s=None,
        log_path=None,
        variables=(),
        alive=lambda: True,
        log_tail=lambda lines=30: "",
        log_text=lambda: "",
        own_log_text=lambda: "",
        sockets=lambda: None,
        close=lambda: None,
    )
