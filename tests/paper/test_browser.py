"""The page in headless Chromium, as a reader uses it."""

import shutil
import tempfile
from collections.abc import Iterator

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_OPTIONS += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def browser() -> Iterator:
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if not found:
        pytest.skip(f"no browser: none of {', '.join(_BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as profile, sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch_persistent_context(profile, executable_path=found, args=_OPTIONS)
        yield started
        started.close()


@pytest.fixture
def page(browser, page_path) -> Iterator:
    """The open page; fails where it reports an error or asks for anything beside itself."""
    opened, complaints, requests = browser.new_page(), [], []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(page_path.as_uri())
    yield opened
    opened.close()
    assert not complaints
    assert [url for url in requests if not url.startswith("data:")] == [page_path.as_uri()]


@pytest.mark.parametrize("width", [360, 390, 768, 1440])
def test_only_tables_scroll_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.panel svg')].map(e => e.scrollWidth))") <= width


def test_pointing_at_a_mark_shows_its_text_label_and_prediction(page):
    stage = page.locator(".map").first
    mark = stage.locator(".point.right").first
    mark.scroll_into_view_if_needed()
    help_text = (details := stage.locator(".details")).inner_text()
    mark.hover(force=True)
    assert "of the & <b>world</b>" in details.inner_text()
    assert "Label: word" in details.inner_text()
    assert "Prediction: word" in details.inner_text()
    page.mouse.move(0, 0)
    assert details.inner_text() == help_text


@pytest.mark.parametrize("width", [390, 1400])
def test_pointing_covers_no_mark_and_moves_nothing(page, width):
    page.set_viewport_size({"width": width, "height": 1200})
    stage = page.locator(".map").first
    stage.scroll_into_view_if_needed()
    before, height = stage.locator(".points").bounding_box(), page.evaluate("document.body.scrollHeight")
    stage.locator(".point.wrong").first.hover(force=True)
    covered = """marks => marks.filter(mark => {
        const { x, y, width, height } = mark.getBoundingClientRect();
        return !document.elementFromPoint(x + width / 2, y + height / 2)?.closest(".points");
    }).length"""
    assert stage.locator(".point").evaluate_all(covered) == 0
    assert stage.locator(".points").bounding_box() == before
    assert page.evaluate("document.body.scrollHeight") == height


def test_a_chosen_mark_is_read_again_after_pointing_at_another(page):
    stage = page.locator(".map").first
    stage.locator(".point.right").first.click(force=True)
    chosen = stage.locator(".details").inner_text()
    stage.locator(".points [tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert stage.locator(".details").inner_text() != chosen
    assert stage.locator(".details li").count() == 0
    stage.locator(".points [tabindex='0']").blur()
    assert stage.locator(".details").inner_text() == chosen


def test_clicking_a_test_row_lists_its_neighbours_and_a_neighbour_leads_on(page):
    stage = page.locator(".map").first
    stage.locator(".point.right").first.click(force=True)  # Other marks may cover it.
    details = stage.locator(".details")
    assert details.locator("li").count() == 3
    assert all("nats" in text for text in details.locator(".distance").all_inner_texts())
    assert stage.locator(".links line").count() == 3
    details.locator("li button").first.click()
    assert "Anchor. Label: word" in details.inner_text()
    assert "In-context learning: word" in details.inner_text()
    assert "row" in details.locator("li button").first.inner_text()


def test_the_map_is_used_by_keyboard(page):
    stage = page.locator(".map").first
    stage.locator(".points [tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.classList.contains('point')")
    assert "Label" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert stage.locator(".points [tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    assert stage.locator(".chosen").count() == 1
    page.keyboard.press("Escape")
    assert stage.locator(".chosen").count() == 0
    assert "Point at a mark" in stage.locator(".details").inner_text()


def test_a_label_of_the_legend_brings_out_its_marks(page):
    stage = page.locator(".map").first
    stage.get_by_role("button", name="word 1").click()
    kept = stage.locator(".kept").count()
    assert 0 < kept < stage.locator(".point").count()
    stage.get_by_role("button", name="word 1").click()
    assert stage.locator(".kept").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_paper_in_both_schemes(page, scheme):
    page.emulate_media(color_scheme=scheme)
    style = "getComputedStyle(document.querySelector('{}')).{}"
    shades = [
        sum(map(int, page.evaluate(style.format(element, name)).removeprefix("rgb(").rstrip(")").split(",")))
        for element, name in (("body", "backgroundColor"), ("body", "color"), (".panel text", "fill"))
    ]
    assert abs(shades[0] - shades[1]) > 400
    assert abs(shades[0] - shades[2]) > 400


def test_prints_in_light_colours_without_what_only_a_screen_can_do(page):
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".details").first.is_hidden()
    assert page.locator(".points").first.is_visible()
