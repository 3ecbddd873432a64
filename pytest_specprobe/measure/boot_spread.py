"""How much the speed of a server differs from one boot to the next.

Invariant: one constant for all that compares two boots. A boot's speed is log-normal about its server's, with
``BOOT_SPREAD`` as the standard deviation of the logarithm; boots are independent of each other and of the prompts.
"""

import math
from functools import cache
from statistics import NormalDist

import numpy as np

from pytest_specprobe.measure.statistics import SEED, FloatArray, Quantity

BOOT_SPREAD = 0.02


def over_boots(quantity: Quantity, *, boots: int, seed: int = SEED + 2) -> Quantity:
    """Return a positive quantity as other boots would give it: the same value, draws that scatter as boots do.

    :param boots: how many independent boots it was measured over, each a factor of it. 0 changes nothing.
    :param seed: the same seed gives the same boots.
    """
    if boots == 0:
        return quantity
    noise = np.random.default_rng(seed).permutation(_normal(len(quantity.draws)))
    draws = quantity.draws * np.exp(BOOT_SPREAD * math.sqrt(boots) * noise)
    return Quantity(quantity.value, draws, quantity.n, quantity.tail)


@cache
def _normal(count: int) -> FloatArray:
    """Return evenly spread quantiles of a normal distribution: draws whose own luck is in no interval's width."""
    return np.array([NormalDist().inv_cdf((at + 0.5) / count) for at in range(count)])
