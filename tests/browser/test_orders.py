"""A person uploads an archive by the form and watches it, all the way to the bytes of a result."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.platform import tiny_jpeg, tiny_zip
from tests.browser.backstage import Backstage
from tests.browser.console import Console

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.browser


def test_an_uploaded_archive_completes_before_the_eyes_and_is_downloaded(
    console: Console, tmp_path: Path
) -> None:
    """From the form to COMPLETED without a reload, and the download has the committed bytes."""
    console.sign_in()
    source = tiny_zip({"a.jpg": tiny_jpeg(), "notes.txt": b"hello", ".DS_Store": b"junk"})
    order_id = console.place("spring.zip", source, "© 春季")
    console.page.evaluate("window.isTheSamePage = true")
    console.sees("Every result is committed and verified.")
    assert console.page.evaluate("window.isTheSamePage") is True
    assert console.page.get_by_role("heading", name="spring", exact=True).is_visible()
    with console.page.expect_download() as download:
        console.page.get_by_role("link", name="archive.zip", exact=True).click()
    content = Path(download.value.path()).read_bytes()
    page = console.call("GET", f"/api/v1/orders/{order_id}/artifacts")
    archive = next(one for one in page["artifacts"] if one["relative_path"].endswith("archive.zip"))
    assert hashlib.sha256(content).hexdigest() == archive["sha256"]
    assert sorted(zipfile.ZipFile(io.BytesIO(content)).namelist()) == ["a.jpg", "notes.txt"]
    lanes = console.page.locator(".lane .dot")
    assert lanes.count() >= 10, "every hop has left a durable commit"
    picture = console.page.locator(".tile img").first
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("async (img) => { await img.decode(); return img.naturalWidth; }") > 0
    console.page.get_by_role("button", name=re.compile("^watermark: succeeded")).click()
    console.page.get_by_role("button", name="watermark ×").wait_for()


def test_a_refused_archive_says_what_is_wrong_and_whose_move_it_is(console: Console) -> None:
    """Bad input ends as the person's move, with the reason; the list shows it and filters by it."""
    console.sign_in()
    console.place("bad.zip", tiny_zip({"../evil.txt": b"x"}))
    console.sees("It needs you.")
    console.sees("ARCHIVE_UNSAFE_PATH")
    console.sees("Your data is safe")
    console.page.get_by_role("link", name="← All orders").click()
    console.page.get_by_role("link", name="Needs attention", exact=True).click()
    console.page.wait_for_url(re.compile(r"status=NEEDS_ATTENTION"))
    console.page.get_by_role("link", name="bad", exact=True).wait_for()
    console.page.get_by_role("link", name="Completed", exact=True).click()
    console.page.get_by_role("link", name="bad", exact=True).wait_for(state="detached")


def test_no_zip_is_refused_in_the_form(console: Console) -> None:
    """What is no ZIP never becomes an order, and the form says so."""
    console.sign_in()
    console.open("/new")
    console.choose("fake.zip", b"this is no archive")
    console.page.get_by_label("Watermark text").fill("x")
    console.button("Upload and order").click()
    console.sees("The file was refused")
    # The browser itself notes the answer 422.
    console.complaints.clear()


def test_without_agents_the_banner_says_what_is_waited_for_and_goes_on_by_itself(
    console: Console, backstage: Backstage
) -> None:
    """Agents die: the order waits and says for what; one comes back: it completes, no reload."""
    console.sign_in()
    console.open("/nodes")
    console.add_operator()
    agents = console.platform.agents
    for agent in agents:
        backstage.run(agent.stop())
    try:
        console.place("waiting.zip", tiny_zip())
        console.sees("Not stuck: it waits.")
        console.page.locator(".lane-bar.waiting").first.wait_for()
        console.page.get_by_role("button", name=re.compile("^clean: ready")).click()
        console.button("Why not yet?").click()
        console.page.get_by_role("dialog").get_by_text("agent-1").wait_for()
        console.page.keyboard.press("Escape")
        console.page.evaluate("window.isTheSamePage = true")
    finally:
        for agent in agents:
            backstage.run(agent.start())
    console.sees("Every result is committed and verified.")
    assert console.page.evaluate("window.isTheSamePage") is True


def test_a_cut_stream_is_mended_and_what_was_missed_is_shown(
    console: Console, context: BrowserContext, backstage: Backstage
) -> None:
    """The gateway goes away: the tab says so; it is back: another tab's order comes up live."""
    console.sign_in()
    console.sees("Live")
    console.page.evaluate("window.isTheSamePage = true")
    gateway = console.platform.gateways[0]
    backstage.run(gateway.stop())
    try:
        console.sees("Connection cut")
    finally:
        backstage.run(gateway.start())
    console.page.locator(".live.open").wait_for()
    other = Console(context.new_page(), console.platform)
    other.place("from elsewhere.zip", tiny_zip())
    console.page.get_by_role("link", name="from elsewhere", exact=True).wait_for()
    console.page.get_by_role("row", name=re.compile("from elsewhere.*Completed")).wait_for()
    assert console.page.evaluate("window.isTheSamePage") is True
    # The browser itself notes that it could not connect.
    console.complaints.clear()


def test_an_order_is_cancelled_and_run_again_after_asking(console: Console) -> None:
    """Acts are confirmed first; running again makes run 2, which completes."""
    console.sign_in()
    console.place("again.zip", tiny_zip())
    console.sees("Every result is committed and verified.")
    console.button("Run again").click()
    dialog = console.page.get_by_role("dialog")
    assert dialog.get_by_role("button", name="Copy as curl").is_visible()
    console.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    console.button("Run again").click()
    dialog.get_by_label("Why").fill("for the test")
    dialog.get_by_role("button", name="Yes, run again").click()
    console.sees("run 2")
    console.sees("Every result is committed and verified.")


def test_an_operator_approves_a_step_and_the_order_goes_on(console: Console) -> None:
    """The order waits for an approval and says so; approved on its graph, it completes."""
    console.gateway = 2
    console.open()
    console.sign_in()
    console.open("/nodes")
    console.add_operator()
    console.place("reviewed.zip", tiny_zip())
    console.sees("It waits for an approval.")
    console.page.get_by_role("button", name=re.compile("^review: waits for approval")).click()
    console.button("Approve").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("looks good")
    dialog.get_by_role("button", name="Yes, approve").click()
    console.sees("Every result is committed and verified.")
