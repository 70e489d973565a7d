"""Fisher's exact test of two arms."""

from math import comb


def fisher(hits: int, count: int, control_hits: int, control_count: int) -> float:
    """Return the chance of at most so many hits in the first arm, if both had the same rate. One-sided.

        p = sum over x <= hits of C(n, x) C(m, k - x) / C(n + m, k)

    n, m: runs of the arm and of the control; k: hits of both together.
    Source: R. A. Fisher, The Design of Experiments, 1935, section 2. 0 of 5 against 5 of 5 gives 1/252.
    """
    together = hits + control_hits
    ways = sum(
        comb(count, x) * comb(control_count, together - x)
        for x in range(max(0, together - control_count), hits + 1)
    )
    return ways / comb(count + control_count, together)
