"""Storage of metric points and the curves that are computed from them."""
