"""Drawings: SVG that is safe in a page beside others."""

import pathlib
import re

import pytest

from knnprompt_jax.report import drawing
from tests.report.conftest import svg_texts

pytestmark = pytest.mark.usefixtures("style")


def test_texts_are_kept_and_nothing_applies_to_the_rest_of_the_page():
    panel = drawing.Panel("<b>$100 & $200</b>", "x", "0.12345 nats")
    panel.axes.plot([1, 2], [0.123456, 2], **drawing.line_style(0))
    panel.set_ticks([0.015625, 0.5])
    assert {"<b>$100 & $200</b>", "0.12345 nats", "0.015625", "0.5"} <= set(svg_texts(panel.svg))
    assert drawing.PALETTE[0] in panel.svg
    assert not re.search(r"<style|<metadata|<!--", panel.svg)


def test_the_page_has_the_palette_of_the_figures():
    """Maps take their colours from page.css, figures from `drawing.PALETTE`."""
    css = (pathlib.Path(drawing.__file__).parent / "page" / "page.css").read_text(encoding="utf-8")
    assert re.findall(r"--c(\d): (#[0-9a-f]{6})", css) == [(f"{i}", color) for i, color in enumerate(drawing.PALETTE)]


@pytest.mark.parametrize("label", ["שלום 中文 😀", "\x00\x1b", "\ud800x", "$x$ \\frac{"])
def test_any_label_is_drawn_without_a_warning(label, recwarn):
    panel = drawing.Panel(label)
    panel.axes.set_xticks([0, 1], [drawing.drawable(label), "b"])
    assert panel.svg.startswith("<svg")
    assert not recwarn.list
