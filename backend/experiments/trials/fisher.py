"""Fisher's exact test of two arms."""

from math import comb


def fisher(hits: int, count: int, control_hits: int, control_count: int) -> float:
    """Return the one-sided p-value: the chance of at most this many hits in the first arm if the rates are
    equal.

    p = sum over x <= hits of C(n, x) C(m, k - x) / C(n + m, k)

    n and m are the numbers of runs of the arm and the control, and k is the number of hits of both together.
    Source: R. A. Fisher, The Design of Experiments, 1935, section 2. 0 of 5 against 5 of 5 gives 1/252.
    """
    total_hits = hits + control_hits
    table_count = sum(
        comb(count, x) * comb(control_count, total_hits - x)
        for x in range(max(0, total_hits - control_count), hits + 1)
    )
    return table_count / comb(count + control_count, total_hits)
