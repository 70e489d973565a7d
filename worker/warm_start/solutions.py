"""Imperfect worked solutions of `sums`, which the tiny policy imitates before its training with rewards."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Carelessness:
    """Error probabilities of the imitated pupil."""

    forgets_carries: float = 0.72
    """Probability that an addition forgets all carries into columns with digits: 85+88 = 163."""

    wrong_digit: float = 0.2
    """Probability that the result of an addition has one wrong digit."""

    untagged: float = 0.25
    """Probability that the reasoning starts without its opening tag."""

    unboxed: float = 0.12
    """Probability that the final result follows the reasoning without a box."""


def imperfect_solution(numbers: list[int], random: Random, care: Carelessness) -> str:
    """Write running sums in `<think>`, then the result, with the errors of a careless pupil.

    An error is carried forward: the following running sums start from the wrong number.
    """
    total, lines = numbers[0], []
    for number in numbers[1:]:
        forgets = random.random() < care.forgets_carries
        result = sum_without_carries(total, number) if forgets else total + number
        if random.random() < care.wrong_digit:
            result = replace_digit(result, random)
        lines.append(f"{total}+{number}={result}")
        total = result
    final = str(total) if random.random() < care.unboxed else f"\\boxed{{{total}}}"
    opening = "" if random.random() < care.untagged else "<think>"
    return f"{opening}{','.join(lines)}</think>{final}"


def sum_without_carries(first: int, second: int) -> int:
    """Return the sum by columns, in which a carry is kept only if it opens a new column.

    >>> sum_without_carries(85, 88), sum_without_carries(85, 60)
    (163, 145)
    """
    result, place_value = 0, 1
    while first >= place_value or second >= place_value:
        column = first // place_value % 10 + second // place_value % 10
        is_last = max(first, second) < 10 * place_value
        result += (column if is_last else column % 10) * place_value
        place_value *= 10
    return result


def replace_digit(number: int, random: Random) -> int:
    """Return the number with one digit replaced by another one, but never with a leading zero."""
    digits = list(str(number))
    position = random.randrange(len(digits))
    allowed_digits = "123456789" if position == 0 else "0123456789"
    digits[position] = random.choice([digit for digit in allowed_digits if digit != digits[position]])
    return int("".join(digits))
