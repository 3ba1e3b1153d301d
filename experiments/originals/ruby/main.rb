# frozen_string_literal: true

# The Ruby original: Timeout.timeout around a block. Up to timeout 0.2 (Ruby 3.1) each call starts a thread of its own
# that sleeps and then raises in the caller; later versions share one thread. The program finds out which it has by
# counting threads, and says so beside the versions.
#
# What does not compare with other programs, and what was done about it: arm and cancel cannot be had apart from running
# a block, so a pair is a timeout around an empty block, and so is the ready path; one thread runs at a time (the GVL),
# so more callers add switches and no speed; a wait that is interrupted holds a thread, so a million others cannot be
# had; the interpreter is warmed up for half a second first; the collector runs when it will, except while objects are
# counted. The clock is Process.clock_gettime(CLOCK_MONOTONIC).

require_relative "lib/arguments"
require_relative "lib/report"
require_relative "lib/visit"
require_relative "lib/timeout_system"
require_relative "lib/costs"
require_relative "lib/population"
require_relative "lib/accuracy"
require_relative "lib/memory"
require_relative "lib/verify"

CHECK_FAILED = 1
USER_MISTAKE = 2
UNWRITABLE = 2

EXPERIMENTS = {
  "ready_path" => ->(visit) { Costs.ready_path(visit) },
  "arm_cancel" => ->(visit) { Costs.arm_cancel(visit) },
  "allocs" => ->(visit) { Costs.allocs(visit) },
  "scaling" => ->(visit) { Costs.scaling(visit) },
  "accuracy" => ->(visit) { Accuracy.run(visit) },
  "memory" => ->(visit) { Memory.run(visit) },
  "soak" => ->(_) { warn "originals/ruby: the soak is for the wheel of the article only" }
}.freeze

def main(words)
  options = Arguments.parse(words, EXPERIMENTS.keys, [TimeoutSystem::SERVICE])
  report = Report.new($stdout)
  if options.mode == :list
    report.text(TimeoutSystem::SERVICE)
    return 0
  end
  report.versions(TimeoutSystem.versions)
  if options.mode == :verify
    Verify.run(report)
  else
    EXPERIMENTS.fetch(options.experiment).call(Visit.new(options, report))
  end
  report.failed_checks.zero? ? 0 : CHECK_FAILED
end

begin
  exit main(ARGV)
rescue Arguments::Mistake => e
  warn "originals/ruby: #{e.message}"
  exit USER_MISTAKE
rescue Report::Unwritable => e
  warn "originals/ruby: #{e.message}"
  exit UNWRITABLE
end
