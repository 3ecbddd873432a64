"""Is the CPU engine as fast as SGLang's own torch_native backend, on the same target, without speculation?

Run: ``python -m benchmarks.cpu_backends [--target mini_llama] [--prompts 12] [--repeats 2] [--json FILE]``.

Boots the target twice without a drafter, with the attention backend of the CPU engine and with ``torch_native``
(which cannot verify drafts), and runs the same prompts on both in turns. Ratios of the engine over torch_native,
paired by prompt with 95 % intervals, as in benchmarks/shared_boot.py; texts are compared one by one.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.shared_boot import FIXTURES, Side, compare
from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.report.model.estimate import Estimate
from pytest_specprobe.report.render.text import interval
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec

_NATIVE = ("--attention-backend", "torch_native")
_BOOT_S = 900.0


def main() -> None:
    """Boot, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_backends", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="mini_llama")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def up(name: str, *server_args: str) -> OwnedServer:
            spec = ServerSpec(model=str(FIXTURES / args.target), device="cpu", server_args=server_args)
            return stack.enter_context(boot(spec, log_path=folder / f"{name}.log", timeout_s=_BOOT_S))

        engine, native = up("engine"), up("native", *_NATIVE)
        for server, backend in ((engine, "intel_amx"), (native, "torch_native")):
            if (runs := server.client.server_info().effective()["attention_backend"]) != backend:
                raise SystemExit(f"{backend} was asked for, {runs} runs")
        prompts = [
            Prompt(id=c.id, workload=c.workload, text=c.text, input_ids=engine.client.tokenize_chat(c.messages))
            for c in load_workload("mini", root=Path()).first(args.prompts).chats
        ]
        found = compare(Side(engine, None, 0), Side(native, None, 0), prompts, repeats=args.repeats)
    for name in ("tok_per_s", "cpu_s"):
        sys.stdout.write(f"{name}, engine over torch_native: {interval(Estimate.model_validate(found[name]))}\n")
    sys.stdout.write(f"same text: {found['identical']} of {found['requests']}\n")
    if args.json:
        args.json.write_text(json.dumps({"target": args.target, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
