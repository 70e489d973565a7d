"""The loss of a config written out with the numbers in use, as text and as MathML."""
