"""Why a run of the benchmark has no result."""

from __future__ import annotations

from foundation.errors import TdpError


class BenchError(TdpError):
    """The run failed, or what it ran came out wrong; the message says which and where to look."""

    reason = "BENCH_FAILED"
