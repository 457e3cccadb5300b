"""What a person does at the page, by what they see: names, roles and texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tools.cli.stack_runner import connection_of
from tools.dev_stack.platform import Platform

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Locator, Page

# What the page's rules of accessibility are judged by; the impacts that are no matter of taste.
GRAVE: Final = {"serious", "critical"}


class Console:
    """A tab on the page."""

    def __init__(self, page: Page, platform: Platform) -> None:
        self.page = page
        self.platform = platform
        self.gateway = 1
        self.connection = connection_of(platform)
        self.complaints: list[str] = []
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str = "/") -> None:
        """Load a path of the page anew."""
        self.page.goto(f"{self.platform.gateway_url(self.gateway)}/console{path}")

    def sign_in(self) -> None:
        """Sign in as a client."""
        self._enter(self.connection.gateway_key, "Sign in")

    def add_operator(self) -> None:
        """Add the operator's key, on a page that asks for it."""
        self._enter(self.platform.admin_key, "Add the key")

    def choose(self, name: str, content: bytes) -> None:
        """Choose a file in the form."""
        self.page.set_input_files(
            "input[type=file]", {"name": name, "mimeType": "application/zip", "buffer": content}
        )

    def place(self, name: str, content: bytes, text: str = "") -> str:
        """Upload an archive by the form and order; answer the order's id once its page is there."""
        self.open("/new")
        self.choose(name, content)
        if text:
            self.page.get_by_label("Watermark text").fill(text)
        else:
            self.page.get_by_label("Clean the archive").check()
        self.button("Upload and order").click()
        self.page.wait_for_url(re.compile(r"/console/orders/[0-9a-f-]{36}$"))
        url: str = self.page.url
        return url.rsplit("/", 1)[-1]

    def button(self, name: str) -> Locator:
        """The button of this name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def sees(self, text: str) -> None:
        """Wait until this text is shown."""
        self.page.get_by_text(text).first.wait_for()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Ask the gateway from within the page, as its scripts do."""
        return self.page.evaluate(
            """async ([method, path, body]) => {
                const session = await (await fetch("/console/api/session")).json();
                const headers = {"X-CSRF-Token": session.csrf_token};
                if (body) headers["Content-Type"] = "application/json";
                const text = body ? JSON.stringify(body) : undefined;
                const answer = await fetch(path, {method, headers, body: text});
                return answer.json();
            }""",
            [method, path, body],
        )

    def grave_violations(self, *rules: str) -> list[str]:
        """What axe-core finds on the page as it is now, one line each; by all rules or these."""
        from axe_playwright_python.sync_playwright import Axe

        options = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
        found = Axe().run(self.page, options=options).response["violations"]
        return [
            f"{one['id']}: {[node['html'][:160] for node in one['nodes']]}"
            for one in found
            if one["impact"] in GRAVE
        ]

    def _enter(self, key: str, action: str) -> None:
        self.page.get_by_label("Key").fill(key)
        self.button(action).click()
        self.page.get_by_label("Key").wait_for(state="detached")

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.text} {message.location}")
