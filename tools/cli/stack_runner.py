"""Running a whole platform under a command: phases shown, signals obeyed, crashes told."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final, NoReturn, TypeVar

from rich.status import Status

from foundation.errors import InternalError
from tools.cli.connection import Connection
from tools.cli.output import err
from tools.dev_stack.platform import Platform, PlatformConfig, running_platform

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_Result = TypeVar("_Result")


class ProcessDiedError(InternalError):
    """One of the platform's processes ended while it was needed; the message has its log's end."""

    reason = "PROCESS_DIED"


@asynccontextmanager
async def shown_platform(config: PlatformConfig) -> AsyncIterator[Platform]:
    """Run a platform, naming on standard error what is being started."""
    with _phases() as tell:
        running = running_platform(config, tell)
        platform = await running.__aenter__()
    try:
        yield platform
    finally:
        await running.__aexit__(None, None, None)


async def while_alive(platform: Platform, work: Awaitable[_Result]) -> _Result:
    """Await the work; ProcessDiedError if a process of the platform dies meanwhile."""
    async with asyncio.TaskGroup() as group:
        crash = group.create_task(platform.wait_for_crash(), name="crash of a process")
        ending = group.create_task(_outcome(work), name="work of the command")
        await asyncio.wait((crash, ending), return_when=asyncio.FIRST_COMPLETED)
        crash.cancel()
        ending.cancel()
    if ending.cancelled():
        raise ProcessDiedError(crash.result())
    return ending.result()()


async def _outcome(work: Awaitable[_Result]) -> Callable[[], _Result]:
    """Await the work; answer what returns its result, or raises its error outside of any group."""
    try:
        result = await work
    except Exception as error:  # noqa: BLE001 - raised again by whoever asks for the result
        return partial(_raise, error)
    return lambda: result


def _raise(error: Exception) -> NoReturn:
    raise error


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that is set by SIGINT and SIGTERM."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, asked.set)
    try:
        yield asked
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def connection_of(platform: Platform) -> Connection:
    """Where other commands find this platform: as the operator of the control plane."""
    return Connection(
        gateway_url=platform.gateway_url(),
        gateway_key=platform.client_key,
        control_target=platform.control_target(),
        control_key=platform.admin_key,
    )


@contextmanager
def _phases() -> Iterator[Callable[[str], None]]:
    if not err.is_terminal:
        yield lambda phrase: err.print(f"starting {phrase} …")
        return
    with Status("starting …", console=err) as status:
        yield lambda phrase: status.update(f"starting {phrase} …")
