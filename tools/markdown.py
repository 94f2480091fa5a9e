"""Tables in Markdown."""

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; its first `left` columns are left-aligned."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    lines = [f"| {' | '.join(cells)} |" for cells in [header, *rows]]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])
