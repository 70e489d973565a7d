"""Imperfect worked solutions of `sums`: what the tiny policy imitates before it is trained by reward."""

from random import Random

ERROR_RATE = 0.30
"""Chance that a running sum is written with one wrong digit."""

UNBOXED_RATE = 0.12
"""Chance that the result stands after the reasoning without a box."""


def imperfect_solution(numbers: list[int], random: Random) -> str:
    """Running sums in `<think>`, then the result, with the slips of a careless pupil.

    A slip is carried on: the following running sums start from the wrong number.
    """
    total, lines = numbers[0], []
    for number in numbers[1:]:
        result = total + number
        if random.random() < ERROR_RATE:
            result = with_wrong_digit(result, random)
        lines.append(f"{total}+{number}={result}")
        total = result
    final = str(total) if random.random() < UNBOXED_RATE else f"\\boxed{{{total}}}"
    return f"<think>{','.join(lines)}</think>{final}"


def with_wrong_digit(number: int, random: Random) -> int:
    """The number with one digit replaced by another one (never by a leading zero)."""
    digits = list(str(number))
    place = random.randrange(len(digits))
    allowed = "123456789" if place == 0 else "0123456789"
    digits[place] = random.choice([digit for digit in allowed if digit != digits[place]])
    return int("".join(digits))
