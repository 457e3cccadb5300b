"""What children print is in the agent's log at debug, line by line, by attempt."""

from structlog.testing import capture_logs

from node_agent.adapters.outbound.process_host.output_lines import LINE_BYTES_MAX, OutputLines


def test_lines_are_logged_with_their_attempt() -> None:
    """Pieces are put together, a rest stays with its attempt, and all is bounded."""
    told: list[str] = []
    lines = OutputLines(told.append)
    with capture_logs() as logs:
        lines.begin("one")
        for piece in (b"fir", b"st\nsec", b"ond\nrest"):
            lines.write(piece)
        lines.begin("two")
        lines.write(b"x" * (LINE_BYTES_MAX + 1))
        lines.write(b"\xff\n")
    assert [(one["attempt_id"], one["line"]) for one in logs] == [
        ("one", "first"),
        ("one", "second"),
        ("one", "rest"),
        ("two", "x" * LINE_BYTES_MAX),
        ("two", "\ufffd"),
    ]
    assert told == [one["line"] for one in logs]
    assert {(one["event"], one["log_level"]) for one in logs} == {("capability_output", "debug")}
