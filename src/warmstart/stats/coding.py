"""The length of a code for labels that learns their frequencies as it goes."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln


def frequency_code_bits(counts: np.ndarray) -> float:
    """Bits that labels take in the sequential code of Krichevsky and Trofimov (1981), whatever their order.

    The code predicts class c with probability ``(n_c + 1/2) / (n + C/2)`` after n labels, n_c of them of the class. The product of
    these is ``Gamma(C/2) / Gamma(1/2)^C * prod_c Gamma(n_c + 1/2) / Gamma(n + C/2)`` (The performance of universal encoding,
    equation 1.2). It exceeds the entropy of ``counts`` (C,) by at most ``(C - 1) / 2 * log2(n) + log2(C)`` bits.
    Parity: tests/test_probes.py: ``test_frequencies_alone_give_the_code_of_krichevsky_and_trofimov``.

    >>> round(frequency_code_bits(np.array([1, 1])), 3)  # 1/2 and 1/4
    3.0
    """
    half = np.asarray(counts, dtype=np.float64) + 0.5
    classes = len(half)
    return float(gammaln(half.sum()) - gammaln(half).sum() + classes * gammaln(0.5) - gammaln(classes / 2)) / math.log(2)
