"""How much of each GPU a server takes, as its flags say, and how many of them fit beside each other."""

from collections.abc import Sequence
from itertools import pairwise

FLAG = "--mem-fraction-static"
DEFAULT = 0.85
"""What SGLang takes if no flag says otherwise, roughly: it sizes its cache to fill the GPU."""
MOST = 0.94
"""Largest sum of shares: graphs, activations and the driver need the rest."""


def memory_share(server_args: Sequence[str]) -> float:
    """Return the share of a GPU's memory for weights and cache that these flags ask for, in (0, 1).

    The last mention counts, as it does for SGLang. A value that SGLang will refuse counts as the default.
    """
    found = DEFAULT
    for word, after in pairwise([*server_args, ""]):
        name, equals, value = word.partition("=")
        if name == FLAG:
            found = _share(value if equals else after)
    return found


def fits(server_args: Sequence[str], *, servers: int) -> bool:
    """Tell whether so many servers with these flags fit on the same GPUs."""
    return memory_share(server_args) * servers <= MOST


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return DEFAULT
    return value if 0 < value < 1 else DEFAULT
