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
    Mutant.RUN_KEEPS_FIVE_SIXTHS: ("ambush_run", "cut_one_way", "ambush_run", "kill_one_replica"),
    Mutant.RESTART_RUNS_WITHOUT_KEEP: ("kill_node", "cut_node"),
    Mutant.CLOCK_STOPS_IN_SUSPEND: ("suspend_node",),
    Mutant.NODE_STAYS_WITH_SILENT_REPLICA: ("stall_one_replica", "kill_one_replica"),
    Mutant.ANSWER_BEFORE_COMMIT: ("fail_commits", "ambush_reply"),
    Mutant.HEARTBEAT_NUMBER_READ_LAST: ("slow_replies", "ambush_run"),
    Mutant.NO_HOLD: ("kill_all_replicas", "stall_all_replicas"),
    Mutant.HELLO_DOES_NOT_JUDGE_THE_GUARD: ("restart_database",),
    Mutant.MISSING_ARE_LOST_AT_HELLO: ("stall_one_replica", "cut_pair"),
    Mutant.SWEEP_USES_A_LATER_NOW: ("stall_all_replicas", "lock_table_or_guard"),
    Mutant.SWEEP_IGNORES_THE_CLOCK_AT_THE_ROW: (
        "slow_replies",
        "clock_goes_back",
    ),
    Mutant.SWEEP_DOES_NOT_REPEAT_ITS_PREDICATE: (
        "kill_one_replica",
        "cut_pair",
        "cut_node",
        "slow_commits",
    ),
    Mutant.SWEEP_STAMPS_THE_GUARD: ("block_sessions",),
    Mutant.SKIPPED_ROWS_SET_NO_HOLD: ("lock_rows",),
    Mutant.NOT_DUE_IS_NAMED_RENEWED: ("ambush_reply",),
    Mutant.RENEWS_FROM_MEMORY: ("kill_node",),
    Mutant.REPLACED_SESSION_NAMES_LEASES_LOST: ("stall_one_replica", "cut_pair"),
    Mutant.CLOCK_GOING_BACK_IS_NOT_SEEN: ("clock_goes_back", "kill_node"),
    Mutant.LATE_RESULTS_ARE_ACCEPTED: ("cut_one_way", "cut_node"),
    Mutant.LEASE_VERSION_STAYS: ("kill_node",),
}
"""The faults under which each broken rule shows soonest."""

FIRST_SEED: dict[Mutant, int] = {
    Mutant.DEADLINE_FROM_RECEIPT: 37,
    Mutant.RUN_KEEPS_FIVE_SIXTHS: 135,
    Mutant.HEARTBEAT_NUMBER_READ_LAST: 69,
    Mutant.HELLO_DOES_NOT_JUDGE_THE_GUARD: 13,
    Mutant.SWEEP_USES_A_LATER_NOW: 86,
}
"""Where the search for a rare one begins; found by `--mutant NAME`, and found anew when the world
changes, since every change deals all seeds' cards again."""
