"""A planted task that one turn cannot solve, trained with a tool and without."""
