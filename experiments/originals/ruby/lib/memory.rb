# frozen_string_literal: true

require "objspace"
require_relative "timeout_system"

# What timeouts whose blocks came to an end still hold.
module Memory
  TIMERS_QUICK = 200_000
  TIMERS_FULL = 1_000_000
  MADE_QUICK = 10_000
  MADE_FULL = 40_000
  WARM_PAIRS = 100
  DURATION_S = 60

  module_function

  def run(visit)
    cell = { kind: "cancelled", timers: visit.full ? TIMERS_FULL : TIMERS_QUICK, duration_ms: DURATION_S * 1000 }
    made = visit.full ? MADE_FULL : MADE_QUICK
    arm_and_end(WARM_PAIRS)
    heap_before = live_bytes
    resident_before = TimeoutSystem.resident_bytes
    arm_and_end(made)
    held = (live_bytes - heap_before) / made.to_f
    resident = (TimeoutSystem.resident_bytes - resident_before) / made.to_f
    clocks = [TimeoutSystem.clock_cost_ns]
    note = "#{made} of them, as a call costs a thread or the wake-up of one"
    visit.report.samples(TimeoutSystem::SERVICE, cell, "held", "B", [held], clocks,
                         "#{note}; objects of the interpreter after a collection")
    visit.report.samples(TimeoutSystem::SERVICE, cell, "rss", "B", [resident], clocks, note)
  end

  def arm_and_end(count)
    count.times { Timeout.timeout(DURATION_S) { nil } }
  end

  def live_bytes
    GC.start
    ObjectSpace.memsize_of_all
  end
end
