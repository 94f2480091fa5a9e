"""Round numbers up to a multiple or to a power of two."""


def round_up(number: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `number`."""
    return -(-number // multiple) * multiple


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`, which is at least 1."""
    return 1 << (number - 1).bit_length()
