# frozen_string_literal: true

require_relative "timeout_system"

# How late a timeout around a sleeping block is seen: from just before the call to the rescue. As many threads wait as
# keep the machine nearly idle, each after a random pause.
module Accuracy
  DURATIONS_MS = [1, 5, 10, 25, 100].freeze
  EVENTS_QUICK = 200
  EVENTS_FULL = 1_000
  FEWEST_WAITERS = 4
  MOST_WAITERS = 64
  PAUSE_MS = 10
  WARM_EVENTS = 50

  module_function

  def run(visit)
    lateness(visit.random, 2, WARM_EVENTS)
    events = visit.full ? EVENTS_FULL : EVENTS_QUICK
    DURATIONS_MS.shuffle(random: visit.random).each do |duration_ms|
      late = lateness(visit.random, duration_ms, events)
      cell = { duration_ms: duration_ms }
      if late.include?(nil)
        visit.report.error(TimeoutSystem::SERVICE, cell, "callback_start", "ms",
                           "#{late.count(nil)} of #{events} blocks came to an end without their timeout")
      else
        visit.report.events(TimeoutSystem::SERVICE, cell, "callback_start", "ms", late, TimeoutSystem.clock_cost_ns,
                            "a block that sleeps; one that computes is interrupted a time slice of 100 ms later")
      end
    end
  end

  def lateness(random, duration_ms, events)
    waiters = duration_ms.clamp(FEWEST_WAITERS, MOST_WAITERS)
    left = Queue.new
    events.times { left << (random.rand * (duration_ms + PAUSE_MS) / 1e3) }
    left.close
    threads = Array.new(waiters) { Thread.new { wait_in_turn(left, duration_ms) } }
    threads.flat_map(&:value)
  end

  def wait_in_turn(left, duration_ms)
    late = []
    while (pause_s = left.pop)
      sleep pause_s
      late << TimeoutSystem.lateness_ms(duration_ms)
    end
    late
  end
end
