r"""Characters that a reader does not see, and names that look alike.

Names from files may differ in kinds of blanks, in the Unicode form of an accent, or in characters without a glyph: a
zero-width space, a soft hyphen, a mark of direction. They are compared here, and shown with escapes such as \u200b.
"""

import decimal
import re
import shlex
import unicodedata
from collections.abc import Iterable

# Characters without a glyph outside the category Cf: joiners, fillers, the Braille blank, selectors of variants.
_WITHOUT_GLYPH = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


# Cyrillic and Greek letters, dashes and apostrophes, and the characters of ASCII that look like them.
_TWINS = (
    str.maketrans("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u03bf", "aeopcyxijso")
    | str.maketrans(
        "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405", "ABEKMHOPCTXIJS"
    )
    | str.maketrans("\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a7", "ABEZHIKMNOPTX")
    | str.maketrans("\u2010\u2011\u2012\u2013\u2014\u2212\u2018\u2019\u02bc", "------'''")
)


def is_invisible(character: str) -> bool:
    """Whether a character has no glyph and is no blank: control and format characters, fillers, selectors."""
    if unicodedata.category(character) in ("Cf", "Cc"):
        return not character.isspace()
    return bool(_WITHOUT_GLYPH.match(character))


def is_blank(text: str) -> bool:
    """Whether a text holds nothing but blanks and invisible characters."""
    return all(character.isspace() or is_invisible(character) for character in text)


def stripped(text: str) -> str:
    """Return the text without blanks and invisible characters at both ends."""
    seen = [index for index, character in enumerate(text) if not is_blank(character)]
    return text[seen[0] : seen[-1] + 1] if seen else ""


def tidied(text: str) -> str:
    """Return the text without invisible characters and outer blanks, with single blanks, in Unicode form C."""
    return " ".join(unicodedata.normalize("NFC", _visible(text)).split())


def plain(text: str) -> str:
    """Return the text without differences of case, blanks, invisible characters and Unicode forms."""
    if text.isascii() and text.isprintable():
        return " ".join(text.casefold().split())
    folded = unicodedata.normalize("NFKC", _visible(text)).casefold()
    return " ".join(_visible(unicodedata.normalize("NFKC", folded)).split())


def likeness(text: str) -> str | decimal.Decimal:
    """Return a key that is equal for two names that are probably the same.

    It is `plain` with characters of ASCII for others that look like them, and the value of a number.
    """
    return _valued(plain(text.translate(_TWINS)))


def identity(text: str) -> str | decimal.Decimal:
    """Return a narrower key than `likeness`, for names that become one: Maße is not Masse, and m² is not m2.

    It ignores case, blanks, invisible characters, the composition of accents and the format of a number.
    """
    return _valued(tidied(tidied(text).lower()))


def _valued(key: str) -> str | decimal.Decimal:
    """Return the value of a number, and other keys unchanged."""
    is_number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", key)
    return decimal.Decimal(key) if is_number else key


def escaped(text: str) -> str:
    r"""Return the text with escapes such as \u200b for what a reader cannot see, except the blank."""
    return "".join(
        ascii(character)[1:-1] if not character.isprintable() or is_invisible(character) else character
        for character in text
    )


def shown(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as tables show them: quoted where blanks at the ends, or several in a row, would be overlooked."""
    return tuple(name if name == " ".join(name.split()) else repr(name) for name in names)


def similar(name: str, others: Iterable[str]) -> str | None:
    """Return the first other name that is probably the same, or None."""
    key = likeness(name)
    return next((other for other in others if other != name and likeness(other) == key), None)


def difference(name: str, others: Iterable[str]) -> str:
    r"""Return "; 'x' and 'x\u200b' differ only in …" about the first other name that is probably the same, or ""."""
    other = similar(name, others)
    if other is None:
        return ""
    steps = {
        "invisible characters": _visible,
        "blanks": lambda text: " ".join(text.split()),
        "their Unicode form": lambda text: unicodedata.normalize("NFKC", text),
        "case": str.casefold,
        "characters that look alike": lambda text: text.translate(_TWINS),
    }
    kinds = [kind for kind, change in steps.items() if change(name) == change(other)]
    kind = kinds[0] if kinds else "case, blanks, invisible characters, number format or Unicode form"
    if not kinds and isinstance(likeness(name), decimal.Decimal):
        kind = "number format"
    is_form = kind not in ("blanks", "case", "number format")
    return f"; {_quoted(name, is_form)} and {_quoted(other, is_form)} differ only in {kind}"


def look_alike(names: Iterable[str]) -> bool:
    """Whether two of the names differ only in their Unicode form, or in characters that look alike."""
    seen = [unicodedata.normalize("NFC", name).translate(_TWINS) for name in names]
    return len({*seen}) < len(seen)


def shell_word(name: str) -> str:
    r"""Return a name as a word for a shell: quoted where required, $'\u200b' for what a reader cannot see."""
    if escaped(name) == name and unicodedata.is_normalized("NFC", name):
        return shlex.quote(name)
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + re.sub("[^ -~]", lambda found: _bash_escape(ord(found[0])), quoted) + "'"


def _bash_escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"


def _visible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(character for character in text if not is_invisible(character))


def _quoted(name: str, is_form: bool) -> str:
    return ascii(name) if is_form else f"'{escaped(name)}'"
