"""Names that look alike are recognised, and what a reader cannot see is shown."""

import subprocess
import sys
import unicodedata

import pytest

from knnprompt_jax import characters

FORMATS = [chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code)) == "Cf"]


def test_every_format_character_is_invisible_and_shown_escaped():
    assert len(FORMATS) > 100
    for character in FORMATS:
        assert characters.plain(f"x{character}y") == "xy" and characters.tidied(f"{character}x") == "x", ascii(
            character
        )
        assert characters.stripped(f" {character}x y{character}") == "x y" and characters.is_blank(f" {character}")
        assert characters.escaped(f"x{character}") == f"x{ascii(character)[1:-1]}"


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("x", "x\u200b", "; 'x' and 'x\\u200b' differ only in invisible characters"),
        ("\u2764", "\u2764\ufe0f", "; '\\u2764' and '\\u2764\\ufe0f' differ only in invisible characters"),
        ("caf\u00e9", "cafe\u0301", "; 'caf\\xe9' and 'cafe\\u0301' differ only in their Unicode form"),
        ("a b", "a\u00a0b", "; 'a b' and 'a\\xa0b' differ only in blanks"),
        ("Ham", "ham", "; 'Ham' and 'ham' differ only in case"),
        ("a", "\u0430", "; 'a' and '\\u0430' differ only in characters that look alike"),
        ("B", "\u0412", "; 'B' and '\\u0412' differ only in characters that look alike"),
        ("co-op", "co\u2013op", "; 'co-op' and 'co\\u2013op' differ only in characters that look alike"),
        ("1", "1.0", "; '1' and '1.0' differ only in number format"),
        ("9007199254740993", "9007199254740992", ""),
        ("1e5", "1e6", ""),
        ("nan", "none", ""),
        ("Ham\u200b ", "ham", "; 'Ham\\u200b ' and 'ham' differ only in case, blanks, invisible characters, number"),
    ],
)
def test_the_difference_of_two_names(name, other, words):
    found = characters.difference(name, ["other", other])
    assert found.startswith(words) and bool(found) == bool(words)
    assert (characters.similar(name, [name, other]) == other) == bool(words)


@pytest.mark.parametrize("name", ["label", "my label", "it's", "la\u200bbel", "texte_e\u0301", "a\\'\U000e0001b"])
def test_a_word_for_a_shell_is_that_name(name):
    command = ["bash", "-c", f"printf %s {characters.shell_word(name)}"]
    word = subprocess.run(command, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout.decode()
    assert word == name and (name.isascii() or characters.shell_word(name).isascii())
