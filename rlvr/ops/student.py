"""Student's t, for means of few values."""

import math
from statistics import NormalDist

T975 = {3: 3.18245, 4: 2.77645, 5: 2.57058, 6: 2.44691, 7: 2.36462, 8: 2.30600}  # where the expansion is poor


def student_t(df: int, level: float = 0.95) -> float:
    """Two-sided quantile of Student's t; exact for 1 and 2 degrees of freedom, else to 4 terms of 1/df (A&S 26.7.5).

    The usual level is tabulated for 3 to 8 degrees of freedom, where that misses the third digit.

    Raises:
        ValueError: of no degree of freedom.
    """
    if df < 1:
        raise ValueError(f"Student's t needs at least 1 degree of freedom, not {df}")
    q = (1 + level) / 2
    if df == 1:
        return math.tan(math.pi * (q - 0.5))
    if df == 2:
        return (2 * q - 1) / math.sqrt(2 * q * (1 - q))
    if level == 0.95 and df in T975:
        return T975[df]
    z = NormalDist().inv_cdf(q)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / df**power for power, term in enumerate(terms, 1))
