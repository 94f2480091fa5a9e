"""The marks of a map: a class is told by its shape as well as by its colour, so that no reader needs colours."""

from knnprompt_jax.report import drawing

# SVG paths around the origin, all of about the same area, those least alike first.
_SHAPES = (
    "M-8 0A8 8 0 1 1 8 0 8 8 0 1 1-8 0z",  # Circle.
    "M0-11 10.5 8-10.5 8z",  # Triangle.
    "M-7-7H7V7H-7z",  # Square.
    "M-3.2-10H3.2V-3.2H10V3.2H3.2V10H-3.2V3.2H-10V-3.2H-3.2z",  # Plus.
    "M0-11 9 0 0 11-9 0z",  # Diamond.
    "M0-12 3.2-4.4 11.4-3.7 5.2 1.7 7.1 9.7 0 5.5-7.1 9.7-5.2 1.7-11.4-3.7-3.2-4.4z",  # Star.
    "M0 11 10.5-8-10.5-8z",  # Triangle, point down.
    "M-9.3-4.8-4.8-9.3 0-4.5 4.8-9.3 9.3-4.8 4.5 0 9.3 4.8 4.8 9.3 0 4.5-4.8 9.3-9.3 4.8-4.5 0z",  # Cross.
)


def shape(index: int) -> str:
    """The path of the index-th class; shapes come again after eight classes, in other colours."""
    return _SHAPES[index % len(_SHAPES)]


def colour(index: int, count: int) -> str:
    """The CSS colour of the index-th of `count` classes: the figures' where these suffice, else from a colour wheel.

    Classes of the same shape that follow each other differ in lightness too.
    """
    if count <= len(drawing.PALETTE):
        return f"var(--c{index})"
    return f"oklch({(58, 72)[index // len(_SHAPES) % 2]}% 0.15 {360 * index / count:.0f})"
