"""Honest answers to the reasoning_gym tasks whose checkers are replaced: right, wrong, partial and
respelled.

This file makes all of them from the library's own answers, so the library's evaluators can safely read
them."""

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Entry = dict[str, Any]


def answers(task: str, entry: Entry, rng: Random) -> Iterator[str]:
    """Yield answers to one entry."""
    yield from (entry["answer"], f" {entry['answer']} ", entry["answer"] + ".", "", "I do not know", "42")
    yield from ANSWERS_BY_TASK[task](entry, rng)


def _string(entry: Entry, rng: Random) -> Iterator[str]:
    text = entry["answer"]
    letters = list(text)
    yield from (repr(letters), json.dumps(letters), str(tuple(letters)), repr(text), json.dumps([text]))
    yield from (
        ", ".join(map(repr, letters)),
        "[" + ", ".join(letters) + "]",
        " ".join(letters),
        text.lower(),
    )
    yield from (repr(letters[:-1]), text[:-1], repr(rng.sample(letters, len(letters))), f"[{letters!r}]")
    yield from (repr(letters).replace("]", ",]"), "\n" + repr(letters), f"Answer: {text}", repr(letters)[:-1])


def _numbers(entry: Entry, rng: Random) -> Iterator[str]:
    numbers = entry["metadata"]["solution"]
    wrong_numbers = [*numbers[:-1], (numbers[-1] + 1) % 10]
    for values in (numbers, wrong_numbers, rng.sample(numbers, len(numbers)), numbers[1:]):
        yield from (str(values), json.dumps(values), str(tuple(values)), ", ".join(map(str, values)))
        yield from (
            " ".join(map(str, values)),
            str([float(number) for number in values]),
            str(list(map(str, values))),
        )
    yield from (f"[{numbers}]", str(numbers).replace(",", ""), "[" + " ".join(map(str, numbers)) + "]")
    yield from (str(numbers).replace("]", ",]"), str(numbers)[:-1], f"({numbers})", f"answer = {numbers}")


def _matrix(entry: Entry, rng: Random) -> Iterator[str]:
    rows = [[int(cell) for cell in row.split()] for row in entry["answer"].split("\n")]
    transposed_rows = [list(column) for column in zip(*rows, strict=True)]
    wrong_rows = [[rng.randint(0, 3) for _ in row] for row in rows]
    for values in (rows, transposed_rows, wrong_rows, rows[:-1]):
        yield from (
            str(values),
            json.dumps(values),
            str([tuple(row) for row in values]),
            json.dumps(values, indent=1),
        )
        yield from (
            "\n".join(map(str, values)),
            ",\n".join(map(str, values)),
            str([str(row) for row in values]),
        )
        yield from (
            str([list(map(str, row)) for row in values]),
            "\n".join(" ".join(map(str, row)) for row in values),
        )
    yield from (str(rows)[:-1], f"{rows}]", f"({rows})", str(rows).replace(", ", " "))


def _board(entry: Entry, rng: Random) -> Iterator[str]:
    solutions = entry["metadata"]["solutions"]
    wrong_board = [list(row) for row in entry["metadata"]["puzzle"]]
    wrong_board[0] = rng.sample(wrong_board[0], len(wrong_board[0]))
    for board in (*solutions[:3], wrong_board):
        yield from (
            str(board),
            json.dumps(board),
            str([tuple(row) for row in board]),
            json.dumps(board, indent=1),
        )
        yield from ("\n".join(" ".join(row) for row in board), "\n".join("".join(row) for row in board))
        yield from (str(["".join(row) for row in board]), ",\n".join(map(str, board)), str(board)[:-1])
    yield from (str(solutions[0]).replace("Q", "q"), str(solutions[0]).replace("'", ""))


def _arithmetic(entry: Entry, rng: Random) -> Iterator[str]:
    text = entry["answer"]
    numbers = entry["metadata"]["numbers"]
    target = entry["metadata"].get("target", 24)
    shuffled = " + ".join(map(str, rng.sample(numbers, len(numbers))))
    yield from _spellings(text)
    yield from (shuffled, " * ".join(map(str, numbers)), f"{text} = {target}", str(target), f"({text}) / 1")
    yield from (
        re.sub(r"\d+", lambda match: f"{match[0]}.0", text),
        re.sub(r"\d+", "7", text),
        f"{text} + 0.5",
    )
    yield from (f"-({text})", f"{text} - {numbers[0]}", f"2*({text})/2", f"{text}!", f"sqrt({target}**2)")
    yield from (
        f"{text}\n= {target}",
        f"${text}$",
        f"{numbers[0]}({text})",
        f"{text} # {target}",
        f"abs(-({text}))",
    )
    yield from (
        f"{numbers[0]}/0",
        f"{numbers[0]} {numbers[1]}",
        f"({text}",
        f"{text})",
        f"+{text}",
        f"{text} // 1",
    )
    for _ in range(6):
        operators = [rng.choice("+-*/") for _ in numbers]
        yield "".join(f"{number}{operator}" for number, operator in zip(numbers, operators, strict=True))[:-1]
        yield re.sub(r"[+*/-]", lambda _: rng.choice("+-*/"), text)


def _polynomial(entry: Entry, rng: Random) -> Iterator[str]:
    text = entry["answer"]
    terms = re.findall(r"[+-]? ?[^ ]+", text)
    shuffled_terms = " ".join(
        term if term[0] in "+-" else f"+ {term}" for term in rng.sample(terms, len(terms))
    )
    yield from _spellings(text)
    yield from (
        shuffled_terms,
        entry["metadata"]["polynomial_expr"],
        " ".join(terms[1:]),
        " ".join(terms[:-1]),
        f"{text} + 0",
    )
    yield from (
        f"-({text})",
        f"{text} + {text}",
        f"{text} - 1",
        text.replace("x", "y"),
        text.replace("*", ""),
    )
    yield from (f"P = {text}", f"{text} + w", f"2*({text})", re.sub(r"(\d+)", r"\1.0", text), f"({text})/1")
    yield from (
        re.sub(r"\d", lambda _: str(rng.randint(1, 9)), text),
        f"({text})**1",
        f"{text} + x - x",
        text.upper(),
    )


def _integral(entry: Entry, rng: Random) -> Iterator[str]:
    text = entry["answer"]
    without_constant = text.removesuffix(" + C")
    integrand = entry["metadata"]["integrand"]
    yield from _spellings(text)
    yield from (
        without_constant,
        f"{without_constant} + c",
        f"{without_constant} + K",
        f"{without_constant} + C1",
        f"C + {without_constant}",
        f"{without_constant} + 7",
        f"{without_constant} + pi",
    )
    yield from (
        integrand,
        f"{integrand} + C",
        f"-({without_constant}) + C",
        f"2*({without_constant}) + C",
        f"({without_constant})*C",
        f"{without_constant} + C*x",
    )
    yield from (text.replace("log", "ln"), text.replace("exp(x)", "E**x"), text.replace("exp(x)", "e**x"))
    yield from (
        text.replace("/2", "*0.5"),
        text.replace("sin", "cos"),
        f"F(x) = {text}",
        text.replace("*", ""),
    )
    yield from (
        re.sub(r"(?<![\d.*])\d(?!\d)", lambda _: str(rng.randint(1, 9)), text),
        text.replace("asin", "arcsin"),
    )


def _spellings(text: str) -> Iterator[str]:
    yield from (
        text.replace(" ", ""),
        f"({text})",
        f"\n{text}\n",
        text.replace("**", "^"),
        text.replace("*", " * "),
    )
    yield from (
        text.replace("*", "×"),
        text.replace("-", "−"),
        text.replace("*", "·"),
        text.replace("(", "[", 1),
    )
    yield from (text.replace("/", " / "), text.replace("+", "+\n"), f"(\n{text}\n)", f"{text};", f"= {text}")


def _hexadecimal(entry: Entry, rng: Random) -> Iterator[str]:
    value = int(entry["answer"], 0)
    for number in (value, value + 1, -value, rng.randint(0, 99)):
        yield from (
            hex(number),
            str(number),
            bin(number),
            oct(number),
            hex(number).upper(),
            f"{number:x}",
            f"+{number}",
        )
    yield from (
        f"= {hex(value)}",
        hex(value).replace("0x", "0x0"),
        f"0{value}",
        f"{value:,}",
        f"{value}.0",
        f"{value}_0",
    )


def _complex(entry: Entry, rng: Random) -> Iterator[str]:
    text = entry["answer"]
    yield from (
        text.replace(" ", ""),
        text.replace("i", "j"),
        f"({text})",
        text.replace("i", "*i"),
        f"z = {text}",
    )
    yield from (
        text.replace("+", "-"),
        text.removesuffix("i"),
        f"{text} + 1",
        f"-{text}",
        text.replace(".0", ""),
    )
    yield from (f"{rng.randint(-9, 9)} + {rng.randint(-9, 9)}i" for _ in range(5))
    yield from ("i", "-i", "0", "1e3", "3i", text.upper())


def _sorted(entry: Entry, rng: Random) -> Iterator[str]:
    numbers = re.findall(r"-?[0-9.]+", entry["answer"])
    for values in (numbers, numbers[::-1], numbers[1:], rng.sample(numbers, len(numbers))):
        yield from (str(values), json.dumps(values), str(list(map(float, values))), ", ".join(values))
        yield from (str(list(map(int, map(float, values)))), f"[{', '.join(values)}]", str(tuple(values)))
    yield from (str([float(number) + 0.5 for number in numbers]), f"[{entry['answer']}]", str(numbers)[:-1])


ANSWERS_BY_TASK: dict[str, Callable[[Entry, Random], Iterator[str]]] = {
    "binary_matrix": _matrix,
    "bitwise_arithmetic": _hexadecimal,
    "complex_arithmetic": _complex,
    "countdown": _arithmetic,
    "intermediate_integration": _integral,
    "n_queens": _board,
    "number_sorting": _sorted,
    "polynomial_multiplication": _polynomial,
    "puzzle24": _arithmetic,
    "simple_integration": _integral,
    "spiral_matrix": _numbers,
    "string_insertion": _string,
}
