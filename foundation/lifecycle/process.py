"""A process's outermost frame: event loop, signals, exit status."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog
import uvloop

from foundation.lifecycle.service import StopRequest

_log = structlog.stdlib.get_logger(__name__)
_ALLOCATIONS_PER_COLLECTION: Final = 20_000
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Name of the process, and whether it runs on uvloop or on asyncio's own loop."""

    name: str
    uvloop: bool = True


def run_process(config: ProcessConfig, main: Callable[[StopRequest], Awaitable[None]]) -> int:
    """Run `main` in a new event loop and return the exit status: 0, or 1 if it raised.

    SIGTERM and SIGINT make the stop request that `main` was given; repeated ones change
    nothing, since a terminal and a supervisor often both send one. The handlers stay to the
    end of the process: call it once, from the main thread. `main` opens what the
    process needs, calls `run_services`, and closes it again.
    """
    factory = uvloop.new_event_loop if config.uvloop else asyncio.new_event_loop
    _collect_garbage_seldom()
    with asyncio.Runner(loop_factory=factory) as runner:
        stop_request = StopRequest()
        _stop_on_signals(runner.get_loop(), stop_request)
        try:
            runner.run(_framed(main, stop_request))
        except Exception:  # noqa: BLE001 - logged, and told by the exit status
            _log.exception("process_failed", process_name=config.name)
            return 1
    _log.info("process_stopped", process_name=config.name)
    return 0


def _collect_garbage_seldom() -> None:
    """Leave what was imported out of every collection, and collect after more allocations.

    Nearly all of a server's objects end by their reference counts; walking its modules after
    every 700 new ones is work without a find.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION, 20, 20)


def _stop_on_signals(loop: asyncio.AbstractEventLoop, stop_request: StopRequest) -> None:
    # Not loop.add_signal_handler: closing the loop would restore the default handlers, and
    # a second signal in the last milliseconds would turn a clean exit into a death.
    def on_signal(number: int, _frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop_request.make, signal.Signals(number).name)

    for number in _STOP_SIGNALS:
        signal.signal(number, on_signal)


async def _framed(
    main: Callable[[StopRequest], Awaitable[None]], stop_request: StopRequest
) -> None:
    await main(stop_request)
