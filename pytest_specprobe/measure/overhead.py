"""How much of a request's wall time is ours and not the server's: client, HTTP and network.

Invariant: both ends of both clocks are the same request's; the server's own seconds are what it reports itself
(``e2e_latency``: from the arrival of the request in its tokenizer process to the last token leaving it).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.statistics import resample


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Client overhead of one server's requests.

    ``share`` is sum(wall - server) / sum(wall) over requests, wall running from sending a request to the arrival of
    its last token; ``per_request_s`` the mean of wall - server in seconds; ``requests`` how many were measured.
    """

    share: Estimate
    per_request_s: float
    requests: int


def client_overhead(requests: Sequence[Generation]) -> Overhead | None:
    """Return the client overhead of these requests, bootstrapped over prompts.

    None if a request lacks the server's own time (older servers, proxies that strip it), or with under two prompts.
    """
    prompts: dict[str, list[Generation]] = {}
    for g in requests:
        prompts.setdefault(g.prompt_id, []).append(g)
    if len(prompts) < 2 or any(g.server_s is None for g in requests):
        return None
    wall = np.array([sum(g.last_s - g.start_s for g in own) for own in prompts.values()])
    server = np.array([sum(g.server_s or 0.0 for g in own) for own in prompts.values()])
    samples = resample([own[0].workload for own in prompts.values()])
    return Overhead(
        share=samples.ratio(wall - server, wall).estimate(),
        per_request_s=float((wall - server).sum() / len(requests)),
        requests=len(requests),
    )
