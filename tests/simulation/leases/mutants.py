"""The ways of breaking one rule each, which the simulation must find."""

from enum import StrEnum, auto


class Mutant(StrEnum):
    """One broken rule."""

    NONE = auto()
    # The node's rules.
    DEADLINE_FROM_RECEIPT = auto()
    NO_NODE_DEADLINE = auto()
    RUN_KEEPS_FIVE_SIXTHS = auto()
    RESTART_RUNS_WITHOUT_KEEP = auto()
    CLOCK_STOPS_IN_SUSPEND = auto()
    NODE_STAYS_WITH_SILENT_REPLICA = auto()
    # The server's rules.
    ANSWER_BEFORE_COMMIT = auto()
    HEARTBEAT_NUMBER_READ_LAST = auto()
    NO_HOLD = auto()
    HELLO_DOES_NOT_JUDGE_THE_GUARD = auto()
    MISSING_ARE_LOST_AT_HELLO = auto()
    SWEEP_USES_A_LATER_NOW = auto()
    SWEEP_IGNORES_THE_CLOCK_AT_THE_ROW = auto()
    SWEEP_DOES_NOT_REPEAT_ITS_PREDICATE = auto()
    SWEEP_STAMPS_THE_GUARD = auto()
    SKIPPED_ROWS_SET_NO_HOLD = auto()
    NOT_DUE_IS_NAMED_RENEWED = auto()
    RENEWS_FROM_MEMORY = auto()
    REPLACED_SESSION_NAMES_LEASES_LOST = auto()
    CLOCK_GOING_BACK_IS_NOT_SEEN = auto()
    LATE_RESULTS_ARE_ACCEPTED = auto()
    LEASE_VERSION_STAYS = auto()


_CUTS = ("cut_node", "cut_one_way", "cut_unevenly", "kill_one_replica")

FOCUS: dict[Mutant, tuple[str, ...]] = {
    Mutant.DEADLINE_FROM_RECEIPT: ("cut_unevenly",),
    Mutant.NO_NODE_DEADLINE: ("cut_node",),
    Mutant.RUN_KEEPS_FIVE_SIXTHS: ("cut_node", "cut_unevenly", "kill_all_replicas"),
    Mutant.RESTART_RUNS_WITHOUT_KEEP: ("kill_node", "cut_node"),
    Mutant.CLOCK_STOPS_IN_SUSPEND: ("suspend_node",),
    Mutant.NODE_STAYS_WITH_SILENT_REPLICA: ("stall_one_replica", "kill_one_replica"),
    Mutant.ANSWER_BEFORE_COMMIT: ("slow_commits", "slow_commits", "cut_one_way"),
    Mutant.HEARTBEAT_NUMBER_READ_LAST: ("slow_commits", "slow_commits", "cut_unevenly"),
    Mutant.NO_HOLD: ("kill_all_replicas", "stall_all_replicas"),
    Mutant.HELLO_DOES_NOT_JUDGE_THE_GUARD: ("kill_all_replicas", "restart_database"),
    Mutant.MISSING_ARE_LOST_AT_HELLO: ("stall_one_replica", "cut_pair"),
    Mutant.SWEEP_USES_A_LATER_NOW: ("lock_table_or_guard", "stall_all_replicas"),
    Mutant.SWEEP_IGNORES_THE_CLOCK_AT_THE_ROW: (
        "lock_table_or_guard",
        "clock_goes_back",
        "kill_node",
    ),
    Mutant.SWEEP_DOES_NOT_REPEAT_ITS_PREDICATE: ("lock_table_or_guard", *_CUTS),
    Mutant.SWEEP_STAMPS_THE_GUARD: ("block_sessions",),
    Mutant.SKIPPED_ROWS_SET_NO_HOLD: ("lock_rows",),
    Mutant.NOT_DUE_IS_NAMED_RENEWED: _CUTS,
    Mutant.RENEWS_FROM_MEMORY: ("kill_node",),
    Mutant.REPLACED_SESSION_NAMES_LEASES_LOST: ("stall_one_replica", "cut_pair"),
    Mutant.CLOCK_GOING_BACK_IS_NOT_SEEN: ("clock_goes_back", "kill_node"),
    Mutant.LATE_RESULTS_ARE_ACCEPTED: ("cut_one_way", "cut_node"),
    Mutant.LEASE_VERSION_STAYS: ("kill_node",),
}
"""The faults under which each broken rule shows soonest."""
