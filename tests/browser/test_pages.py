"""Every page: in both languages and themes, by keyboard, on a phone, for those who do not see."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

from tests.acceptance.platform import tiny_jpeg, tiny_zip

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

    from tests.browser.console import Console

pytestmark = pytest.mark.browser

PAGES: Final = ("nodes", "queues", "callbacks", "workflows", "schedules", "applications", "new")
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
STATIC: Final = Path(__file__).parents[2] / "business_gateway" / "console" / "static"


def test_no_page_has_a_grave_fault_in_any_theme_and_all_are_pictured(
    console: Console, screenshots: Path
) -> None:
    """axe-core finds nothing serious on any page, light or dark, on a desk or a phone."""
    found: list[str] = []

    def look(name: str) -> None:
        for scheme in SCHEMES:
            console.page.emulate_media(color_scheme=scheme)
            # The other theme has the same structure and other colours.
            rules = () if scheme == "light" else ("color-contrast",)
            found.extend(f"{name}, {scheme}: {one}" for one in console.grave_violations(*rules))
            console.page.screenshot(path=screenshots / f"{name}-{scheme}.png", full_page=True)

    look("sign-in")
    console.sign_in()
    console.open("/nodes")
    console.add_operator()
    order_id = console.place(
        "catalogue.zip", tiny_zip({f"{n}.jpg": tiny_jpeg() for n in range(3)}), "© TDP"
    )
    console.sees("Every result is committed and verified.")
    console.page.locator(".tile").first.wait_for()
    look("order")
    console.button("Run again").click()
    look("dialog")
    console.page.keyboard.press("Escape")
    console.open("/")
    console.page.get_by_role("link", name="catalogue", exact=True).wait_for()
    look("orders")
    for page in PAGES:
        console.open(f"/{page}")
        console.page.locator("main .card").first.wait_for()
        console.page.locator(".loading").first.wait_for(state="detached")
        look(page)
    console.page.set_viewport_size({"width": 390, "height": 844})
    for name, path in (("phone-orders", "/"), ("phone-order", f"/orders/{order_id}")):
        console.open(path)
        console.page.locator("main .card").first.wait_for()
        look(name)
        assert console.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    assert found == []


def test_the_language_is_chosen_and_kept(console: Console) -> None:
    """Chinese at a choice, everywhere and after a reload; and back."""
    console.sign_in()
    console.page.get_by_label("Language").select_option("zh")
    console.page.get_by_role("heading", name="订单", exact=True).wait_for()
    assert console.page.evaluate("document.documentElement.lang") == "zh"
    console.open("/queues")
    console.page.get_by_role("heading", name="队列与死信").wait_for()
    console.page.get_by_label("语言").select_option("en")
    console.page.get_by_role("heading", name="Queues and dead letters").wait_for()


def test_the_theme_is_chosen_and_kept(console: Console) -> None:
    """Dark at a choice, whatever the system has, also after a reload."""
    console.sign_in()
    background = "getComputedStyle(document.body).backgroundColor"
    light = console.page.evaluate(background)
    console.page.get_by_label("Theme").select_option("dark")
    dark = console.page.evaluate(background)
    assert dark != light
    console.open("/nodes")
    assert console.page.evaluate(background) == dark


def test_the_keyboard_reaches_an_order(console: Console) -> None:
    """Skip link first; then an order is opened by Enter alone."""
    console.sign_in()
    console.place("keys.zip", tiny_zip())
    console.open("/")
    console.page.get_by_role("link", name="keys", exact=True).wait_for()
    console.page.keyboard.press("Tab")
    assert console.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    console.page.get_by_role("link", name="keys", exact=True).focus()
    console.page.keyboard.press("Enter")
    console.page.wait_for_url(re.compile(r"/console/orders/"))


def test_an_operator_drains_a_node_and_gives_it_back(console: Console) -> None:
    """Drain after asking, in the operator's name; the row says so live; uncordon undoes it."""
    console.sign_in()
    console.open("/nodes")
    console.add_operator()
    row = console.page.get_by_role("row", name=re.compile("agent-2"))
    row.get_by_role("button", name="Drain").click()
    dialog = console.page.get_by_role("dialog")
    assert dialog.get_by_role("button", name="Copy as grpcurl").is_visible()
    dialog.get_by_label("Why").fill("a new disk")
    dialog.get_by_role("button", name="Yes, drain").click()
    row.get_by_text("draining").wait_for()
    row.get_by_text("a new disk").wait_for()
    row.get_by_role("button", name="Uncordon").click()
    dialog.get_by_role("button", name="Yes, uncordon").click()
    row.get_by_text("draining").wait_for(state="detached")


def test_a_client_is_asked_for_an_operator_s_key(console: Console) -> None:
    """Nothing of the platform is shown to a client; other keys are refused in words.

    Among them an application's own at the control plane: it is good there, for its own tasks.
    """
    console.sign_in()
    for key in ("tdp_key_wrong", console.platform._state.secrets.submit_key):
        console.open("/nodes")
        console.page.get_by_label("Key").fill(key)
        console.button("Add the key").click()
        console.sees("neither an API key of the gateway nor an operator's key")
        assert console.page.locator("table").count() == 0
    # The browser itself notes each answer 401.
    console.complaints.clear()


def test_signing_out_ends_the_session(console: Console, context: BrowserContext) -> None:
    """The form is back, and the cookie is gone."""
    console.sign_in()
    assert [one["httpOnly"] for one in context.cookies()] == [True]
    console.button("Sign out").click()
    console.page.get_by_label("Key").wait_for()
    assert context.cookies() == []


def test_every_text_is_in_both_languages_and_used_by_name() -> None:
    """The two files have the same keys with the same blanks."""
    texts = {}
    for language in ("en", "zh"):
        lines = (STATIC / f"texts-{language}.js").read_text(encoding="utf-8").splitlines()
        pairs = [found for line in lines if (found := re.fullmatch(r'  "(.+?)": "(.*)",', line))]
        texts[language] = {one[1]: set(re.findall(r"\{\w+\}", one[2])) for one in pairs}
        assert len(pairs) == len(lines) - 3, "a line that is no text"
    assert texts["en"] == texts["zh"]
