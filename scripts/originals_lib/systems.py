"""What is known of the programs before any of them is built: their ecosystems, experiments, and the names of their systems.

A program says itself which systems it has (--list). The names here stand in the tables for a program that cannot be asked,
because its toolchain is missing or its build broke.
"""

OURS = "ours"
EXPERIMENTS = ("ready_path", "arm_cancel", "allocs", "scaling", "accuracy", "memory", "soak")

SYSTEMS = {
    "rust": ("original/pingora/fast_timeout", "original/pingora/tokio_timeout", "original/pingora/above_threshold",
             "original/tokio/time_only", "original/tokio/time_and_io", "original/tokio/time_and_io_known_wakeup",
             "original/tokio/per_worker"),
    "go": ("original/go/after_func", "original/go/context", "original/go/new_timer"),
    "java": ("original/netty/10ms", "original/netty/30ms", "original/netty/100ms", "original/jdk/executor",
             "original/jdk/executor_remove", "original/jdk/or_timeout", "original/jdk/park_nanos", "original/jdk/future_get"),
    "node": ("original/node/set_timeout", "original/node/abort_signal", "original/node/promise_race"),
    "ruby": ("original/ruby/timeout",),
    "c": ("original/libuv/timer", "original/libev/timer"),
}

# Experiments that only some programs have.
ONLY = {"soak": ("rust", OURS)}

# Services that the numbers to reach are about. They are measured next to each original; the rest of ours once a round.
JUDGED = ("coarse_slot", "coarse_slot_faithful", "per_thread_wheel")
# Experiments whose figures drift with the machine.
ALTERNATING = ("ready_path", "arm_cancel", "scaling", "accuracy")

# Originals that only the thread of their loop may arm and cancel.
LOOP_ONLY = ("original/node/", "original/libuv/", "original/libev/")


def systems_of(ecosystem: str) -> tuple[str, ...]:
    return SYSTEMS.get(ecosystem, (f"original/{ecosystem}",))


def takes_part(ecosystem: str, experiment: str) -> bool:
    return experiment not in ONLY or ecosystem in ONLY[experiment]
