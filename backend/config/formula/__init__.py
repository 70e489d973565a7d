"""Write the loss of a config as a formula with its numbers, as text and as MathML."""
