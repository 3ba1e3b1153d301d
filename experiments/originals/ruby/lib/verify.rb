# frozen_string_literal: true

require_relative "timeout_system"

# What the system must do before its figures mean anything. It documents no early fire.
module Verify
  FIRE_MS = 20
  CANCELLED_MS = 10
  SENTINEL_MS = 40
  EVENTS = 100
  LONGEST_MS = 30
  WAITERS = 10

  module_function

  def run(report)
    late = TimeoutSystem.lateness_ms(FIRE_MS)
    report.check("a timeout fires", TimeoutSystem::SERVICE, !late.nil? && late >= 0,
                 "#{FIRE_MS} ms: #{late.nil? ? 'the block came to an end' : format('%.3f ms late', late)}")
    cancelled(report)
    never_early(report)
  end

  # A block that is done before its timeout; then the caller sleeps on, and only the sentinel may interrupt it.
  def cancelled(report)
    fired = false
    sentinel = nil
    begin
      Timeout.timeout(CANCELLED_MS / 1e3) { nil }
      sentinel = TimeoutSystem.lateness_ms(SENTINEL_MS)
    rescue Timeout::Error
      fired = true
    end
    passed = !fired && !sentinel.nil? && sentinel >= 0
    report.check("a cancelled timeout does not fire", TimeoutSystem::SERVICE, passed,
                 "a later sentinel #{passed ? 'fired at its time' : 'did not'}, " \
                 "the cancelled one #{fired ? 'fired' : 'did not fire'}")
  end

  def never_early(report)
    threads = Array.new(WAITERS) do |waiter|
      Thread.new do
        (EVENTS / WAITERS).times.map { |i| TimeoutSystem.lateness_ms(1 + (((i * WAITERS) + waiter) % LONGEST_MS)) }
      end
    end
    late = threads.flat_map(&:value)
    seen = late.compact
    earliest = seen.empty? ? "none to tell" : format("%+.3f ms", seen.min)
    report.check("no timeout fires early", TimeoutSystem::SERVICE, seen.size == late.size && seen.min >= 0,
                 "#{seen.size} of #{late.size} timeouts of 1 to #{LONGEST_MS} ms seen, the earliest #{earliest}")
  end
end
