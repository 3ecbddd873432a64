"""Did anyone else use the server? Seen in the log of a server that we own."""

import re

from pytest_specprobe.findings import Finding

# Prefill lines are not looked at: a health check is a prefill of one token, and never decodes.
_DECODE = re.compile(r"Decode batch.*?#running-req: (\d+).*?#queue-req: (\d+)")
_SHARE = 0.02


def check_traffic(log_text: str, *, concurrency: int) -> Finding:
    """Check that the decode batches of the log held no more requests than the probe had in flight.

    A request may linger in a batch or two after its last token, so more than 2 % of the lines, and two at least, must
    say so.

    :param log_text: the part of the log that the passes wrote.
    :param concurrency: the most requests that the probe had in flight at once.
    """
    requests = [int(found[1]) + int(found[2]) for found in _DECODE.finditer(log_text)]
    over = [count for count in requests if count > concurrency]
    crowded = len(over) >= 2 and len(over) > _SHARE * len(requests)
    seen = f"{len(over)} of {len(requests)} decode batches held more than {concurrency}, up to {max(over, default=0)}"
    return Finding(
        id="measure.other-traffic",
        severity="error",
        status="fail" if crowded else "pass",
        culprit="machine",
        seen=seen if over else f"at most {concurrency} requests in each of {len(requests)} decode batches",
        expected=f"no more than the probe's own {concurrency} requests at once",
        why="Another client's requests share the batch: they slow ours down and change what is verified together.",
        fix="make sure that nothing else talks to this server, then measure again",
    )
