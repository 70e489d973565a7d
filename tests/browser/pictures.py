"""Pictures of pages for the documentation, as small files."""

from pathlib import Path

from PIL import Image

COLOURS = 256


def shrink(picture: Path) -> None:
    """Write a PNG again with a palette: the file of a chart becomes a third as large."""
    with Image.open(picture) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)
