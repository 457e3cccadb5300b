"""How a process lives: services started in order, watched, and stopped in reverse order."""

from foundation.lifecycle.loops import DueLoop, LoopConfig, periodic
from foundation.lifecycle.process import ProcessConfig, run_process
from foundation.lifecycle.running import Runnable, RunningService
from foundation.lifecycle.service import (
    Service,
    ServiceDiedError,
    StopRequest,
    Supervision,
    run_services,
)
from foundation.lifecycle.systemd import SystemdNotifier, SystemdWatchdog

__all__ = [
    "DueLoop",
    "LoopConfig",
    "ProcessConfig",
    "Runnable",
    "RunningService",
    "Service",
    "ServiceDiedError",
    "StopRequest",
    "Supervision",
    "SystemdNotifier",
    "SystemdWatchdog",
    "periodic",
    "run_process",
    "run_services",
]
