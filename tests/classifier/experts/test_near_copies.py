"""Near copies have one number. Other texts do not, even if they share a template."""

import numpy as np
import pytest

from knnprompt_jax import tasks
from knnprompt_jax.classifier.experts import near_copies
from knnprompt_jax.tasks.task import Example

TEXTS = [row.fields["sentence"] for row in tasks.load_rows(tasks.get("demo"), "train")[:60]]
LETTERS = "abcdefghijklm"
OWN = [" ".join(f"{x}{y}{z}" for y in "opq" for z in LETTERS[:7]) for x in LETTERS]  # 21 words.
SIGNATURES = ("Kim", "Bo from the second floor in Lima")
KINDS = {
    "signature": lambda text, copy: (f"{text} -- {SIGNATURES[copy]}",),
    "annotator": lambda text, copy: (text, SIGNATURES[copy]),
    "date": lambda text, copy: (f"{text} ({3 + copy} {('May', 'June')[copy]} 2024)",),
    "number": lambda text, copy: (f"Case {77 * len(text) + copy}: {text}",),
    "punctuation": lambda text, copy: (text + ".!" * copy,),
    "invisible characters": lambda text, copy: (text if copy else f"\u200b{text}".replace(" ", "\u00a0\u00ad"),),
    "preview": lambda text, copy: (text if copy else text[: len(text) * 3 // 4] + "…",),
    "quote": lambda text, copy: (f"Same here!\nBert wrote:\n> {text}" if copy else text,),
    "order of fields": lambda text, copy: (text[:20], text[20:])[:: 1 - 2 * copy],
}
DIFFERENT = {
    "questions": [f"What is the capital of {place} ?" for place in ("Ohio", "Chile", "Peru", "Mali", "Iran", "Togo")],
    "commands": ["turn the kitchen lights on", "turn the hall lights off", "set an alarm for seven", "wake me at nine"],
    "template": [
        f"please {verb} my {noun} today" for verb in ("reset", "cancel", "change") for noun in ("card", "pin")
    ],
    "numbers": [f"sensor {place} reads {17 * place} of 99" for place in range(60)],
    "beginnings": [
        *(f"can I {verb} my {noun}" for verb in ("change", "block", "see") for noun in ("PIN", "card", "name")),
        "can I change my PIN when I am abroad without a phone that works and with none of your machines in reach",
    ],
    "long name": [f"{text} the lost island of dreams and pale shadows" for text in OWN[:2]],
    "signature of many": [f"{text} {OWN[-1]} {OWN[-2]}" for text in OWN[:-2]],
    "symbols": ["\U0001f600", "\U0001f621", "!!", "?", "1", "2"],
    "marks": ["C++ developer", "C# developer", ":)", ":("],
    "vowel signs": ["\u092a\u093f\u0924\u093e", "\u092a\u0940\u0924\u093e"],
    "Chinese": ["这个电影很好看", "今天天气怎么样", "请问银行几点开门"],
}


def number(texts):
    return near_copies.number_texts([Example(dict(enumerate(fields)), "") for fields in texts])


@pytest.mark.parametrize("kind", KINDS)
def test_near_copies_have_one_number(kind):
    numbers_N = number([KINDS[kind](text, copy) for copy in (0, 1) for text in TEXTS])
    np.testing.assert_array_equal(numbers_N, np.tile(np.arange(60), 2))


def test_overlapping_parts_of_a_document_have_one_number():
    documents = [" ".join(TEXTS[start : start + 5]).split() for start in range(0, len(TEXTS), 5)]
    parts = [" ".join(words[start : start + 20]) for words in documents for start in range(0, len(words) - 19, 10)]
    counts = [len(range(0, len(words) - 19, 10)) for words in documents]
    np.testing.assert_array_equal(number([(part,) for part in parts]), np.repeat(np.arange(12), counts))


def test_a_conversation_and_its_beginnings_have_one_number():
    texts = [("\n".join(TEXTS[start : start + end]),) for start in range(0, 60, 3) for end in (1, 2, 3)]
    np.testing.assert_array_equal(number(texts), np.repeat(np.arange(20), 3))


def test_many_copies_with_other_numbers_have_one_number():
    texts = [(f"Case {copy}: your parcel number {kind} was delayed by {kind}",) for copy in range(50) for kind in "abc"]
    np.testing.assert_array_equal(number(texts), np.tile(np.arange(3), 50))


def test_many_copies_with_other_signatures_have_few_numbers():
    names = ("Ann", "Bert", "Carla", "Dora", "Emil", "Fritz", "Gerda", "Hans", "Ida", "Karl", "Lena", "Max")
    copies = [[f"{text} -- {name} Mc{index}{text[:2]}" for name in names] for index, text in enumerate(TEXTS)]
    numbers_N = number([(copy,) for texts in copies for copy in texts])
    assert len(np.unique(numbers_N)) < 1.1 * len(TEXTS)


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_texts_have_numbers_of_their_own(kind):
    texts = [(text,) for text in [*TEXTS, *DIFFERENT[kind]]]
    np.testing.assert_array_equal(number(texts), np.arange(len(texts)))
