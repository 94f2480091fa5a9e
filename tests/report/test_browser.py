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
    opened = browser.new_page()
    complaints = []
    requests = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(page_path.as_uri())
    yield opened
    opened.close()
    assert not complaints
    assert [url for url in requests if not url.startswith("data:")] == [page_path.as_uri()]


@pytest.fixture
def stage(page):
    """The first map."""
    found = page.locator(".map").first
    found.scroll_into_view_if_needed()
    return found


@pytest.mark.parametrize("width", [360, 1440])
def test_only_tables_scroll_sideways_and_pointing_moves_nothing(page, stage, width):
    page.set_viewport_size({"width": width, "height": 1200})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.panel svg')].map(e => e.scrollWidth))") <= width
    box = stage.locator(".points").bounding_box()
    height = page.evaluate("document.body.scrollHeight")
    stage.locator(".point.wrong").first.hover(force=True)
    assert stage.locator(".points").bounding_box() == box
    assert page.evaluate("document.body.scrollHeight") == height


def test_clicking_a_test_row_lists_its_neighbours_and_a_neighbour_leads_on(stage):
    stage.locator(".point.right").first.click(force=True)  # Other marks may cover it.
    details = stage.locator(".details")
    assert details.locator("li").count() == stage.locator(".links line").count() == 3
    assert all("nats" in text for text in details.locator(".distance").all_inner_texts())
    details.locator("li button").first.click()
    assert "Example. Label: word" in details.inner_text() and "In-context learning: word" in details.inner_text()
