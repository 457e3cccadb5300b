"""The command line that every process has: commands, settings, exit statuses."""

import json
import logging
import signal
from collections.abc import Iterator
from typing import ClassVar

import pytest
import structlog
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from foundation.command_line import Errand, Program, run_program
from foundation.errors import UnavailableError
from foundation.failpoints import uninstall_failpoints
from foundation.lifecycle import StopRequest
from foundation.settings import ServiceSettings


class ShopSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TDP_SHOP_")
    variables_read_elsewhere: ClassVar[frozenset[str]] = frozenset()

    seat_count: int = Field(description="How many may sit.")


class Shop:
    """Notes what it was told to do."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []

    async def serve(self, settings: ShopSettings, _stop: StopRequest) -> None:
        self.done.append(("serve", settings.seat_count))

    def sweep(self, settings: ShopSettings) -> None:
        self.done.append(("sweep", settings.seat_count))

    def burn(self, settings: ShopSettings) -> None:
        raise UnavailableError(f"no fire for {settings.seat_count}: bring wood")

    def run(self, *arguments: str) -> int:
        program = Program(
            module="shop",
            process_name="shop",
            settings_class=ShopSettings,
            failpoints=("shop.opened",),
            serve=self.serve,
            serve_purpose="sell",
            errands={
                "sweep": Errand("clean the floor", self.sweep),
                "burn": Errand("heat the oven", self.burn),
            },
        )
        return run_program(program, arguments)


@pytest.fixture
def process_state() -> Iterator[None]:
    """Put back what a command sets for its whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    numbers = (signal.SIGTERM, signal.SIGINT)
    reactions = [signal.getsignal(number) for number in numbers]
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    for number, reaction in zip(numbers, reactions, strict=True):
        signal.signal(number, reaction)
    uninstall_failpoints()


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, process_state: None) -> Shop:
    monkeypatch.setenv("TDP_SHOP_SEAT_COUNT", "4")
    monkeypatch.setenv("TDP_SHOP_UVLOOP", "false")
    return Shop()


@pytest.mark.parametrize("command", ["serve", "sweep"])
def test_a_command_gets_the_settings(shop: Shop, command: str) -> None:
    """The named command alone runs, with the settings that the environment holds."""
    assert shop.run(command) == 0
    assert shop.done == [(command, 4)]


def test_an_errand_that_fails_says_why(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Reason and message are on standard error, without a traceback; the exit status is 1."""
    assert shop.run("burn") == 1
    assert capsys.readouterr().err == "UNAVAILABLE: no fire for 4: bring wood\n"


def test_wrong_settings_are_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable is named, nothing runs, and the exit status is 2."""
    monkeypatch.setenv("TDP_SHOP_SEAT_COUNT", "many")
    assert shop.run("sweep") == 2
    assert "SETTINGS_INVALID: TDP_SHOP_SEAT_COUNT" in capsys.readouterr().err
    assert not shop.done


def test_a_misspelt_variable_is_reported(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log names it and the variable that may be meant; the command runs all the same."""
    monkeypatch.setenv("TDP_SHOP_SEAT_CUONT", "5")
    assert shop.run("sweep") == 0
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "setting_unknown" in one]
    assert json.loads(line)["did_you_mean"] == "TDP_SHOP_SEAT_COUNT"


def test_an_unknown_command_is_refused(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage names the commands there are."""
    with pytest.raises(SystemExit) as caught:
        shop.run("dance")
    assert caught.value.code == 2
    assert "serve" in capsys.readouterr().err


def test_help_says_what_each_command_is_for(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command stands there with its purpose."""
    with pytest.raises(SystemExit):
        shop.run("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "serve: sell; sweep: clean the floor; burn: heat the oven" in text
