"""What a stored baseline must have been measured with."""

from pytest_specprobe.probe.servers.stored_baselines import Question

QUESTION = Question(
    target="t" * 64,
    engine="0.5.23",
    torch="2.9.1",
    gpus=(),
    driver=None,
    workload="w" * 64,
    thinking=None,
    max_new_tokens=256,
    concurrency=1,
)
