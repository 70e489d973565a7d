"""Solve small Boolean formulas, as a replacement for pycosat in reasoning_gym's zebra puzzles.

pycosat is distributed only as C source, so a machine without a compiler cannot install it. The puzzles are
the same with this search, because they depend only on whether a second solution exists. A puzzle of the
default size takes a few tenths of a second, two to three times the time of pycosat.
"""

import importlib.util
import sys
from collections.abc import Iterable, Iterator

Clause = tuple[int, ...]
"""Literals joined by "or". A literal is a variable's number, negative if the variable must be false."""


def itersolve(clauses: Iterable[Iterable[int]]) -> Iterator[list[int]]:
    """Return every assignment that satisfies all clauses, as a sorted list of the literals that hold."""
    return _Search([tuple(dict.fromkeys(clause)) for clause in clauses]).solutions()


def stand_in_for_pycosat() -> None:
    """Let `import pycosat` return this module if pycosat is not installed."""
    if "pycosat" not in sys.modules and importlib.util.find_spec("pycosat") is None:
        sys.modules["pycosat"] = sys.modules[__name__]


class _Search:
    """A depth-first search with unit propagation (Davis, Logemann and Loveland 1962)."""

    def __init__(self, clauses: list[Clause]) -> None:
        self.clauses = clauses
        self.true_literals: set[int] = set()
        self.clauses_by_literal: dict[int, list[Clause]] = {}
        for clause in clauses:
            for literal in clause:
                self.clauses_by_literal.setdefault(literal, []).append(clause)
        variables = {abs(literal) for literal in self.clauses_by_literal}
        self.busiest_first = sorted(variables, key=lambda variable: (-self._uses(variable), variable))

    def solutions(self) -> Iterator[list[int]]:
        if all(self.clauses):  # an empty clause cannot be satisfied
            yield from self._solutions_with([clause[0] for clause in self.clauses if len(clause) == 1])

    def _solutions_with(self, literals: list[int]) -> Iterator[list[int]]:
        added_literals = self._assume(literals)
        if added_literals is None:
            return
        open_variable = next(
            (variable for variable in self.busiest_first if not {variable, -variable} & self.true_literals),
            None,
        )
        if open_variable is None:
            yield sorted(self.true_literals, key=abs)
        else:
            yield from self._solutions_with([open_variable])
            yield from self._solutions_with([-open_variable])
        self.true_literals.difference_update(added_literals)

    def _assume(self, literals: list[int]) -> list[int] | None:
        """Let literals hold with all consequences, and return the added literals, or None after a
        contradiction.
        """
        queue, added_literals = list(literals), list[int]()
        while queue:
            literal = queue.pop()
            if literal in self.true_literals:
                continue
            self.true_literals.add(literal)
            added_literals.append(literal)
            forced_literals = self._forced_literals(literal)
            if forced_literals is None:
                self.true_literals.difference_update(added_literals)
                return None
            queue += forced_literals
        return added_literals

    def _forced_literals(self, literal: int) -> list[int] | None:
        """Return the last open literal of each clause that `literal` shortened to one literal.

        Return None if a clause became empty.
        """
        if -literal in self.true_literals:
            return None
        forced_literals = []
        for clause in self.clauses_by_literal.get(-literal, ()):
            if any(clause_literal in self.true_literals for clause_literal in clause):
                continue
            still_open = [
                clause_literal for clause_literal in clause if -clause_literal not in self.true_literals
            ]
            if not still_open:
                return None
            if len(still_open) == 1:
                forced_literals.append(still_open[0])
        return forced_literals

    def _uses(self, variable: int) -> int:
        return len(self.clauses_by_literal.get(variable, ())) + len(
            self.clauses_by_literal.get(-variable, ())
        )
