"""A stored baseline, and the server and the speed that it was measured with."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.throughput import measure_throughput
from pytest_specprobe.report.store.baselines import StoredBaseline, baseline_key
from pytest_specprobe.report.store.key import Key
from pytest_specprobe.server.spec import ServerSpec
from tests.support.simulated_reports import World, requests

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


SPEC = ServerSpec(model="/models/t", device="cpu", python="/env/bin/python")


FACTS: dict[str, Any] = {
    "target": "t" * 64, "engine": "0.5.23", "torch": "2.9.1", "hardware": "2 cores",
    "host": "2 cores", "driver": None, "workload": "w" * 64, "max_new_tokens": 256,
    "concurrency": 1, "rendering": "r" * 64, "environ": {"PATH": "/bin", "PYTEST_VERSION": "8"},
}  # fmt: skip


KEY = baseline_key(SPEC, **FACTS)


SPEED = measure_throughput(requests(World(), 0.6, 0.02), baseline=requests(World(), None, 0.012))


def stored(days: float = 0, *, key: Key = KEY, rate: float = 82.0) -> StoredBaseline:
    created = (NOW - timedelta(days=days)).isoformat(timespec="seconds")
    return StoredBaseline(
        created=created,
        key=key,
        tok_per_s=Estimate(rate, 0.99 * rate, 1.01 * rate, 30),
        first_token_s=0.2,
        rows=(("p", 10, 0.1),),
    )
