# frozen_string_literal: true

require_relative "timeout_system"

# Calls that wait while others are measured: a thread each, whose block sleeps under a timeout of 120 to 840 s.
class Population
  EARLIEST_S = 120
  LATEST_S = 840
  LOOK_EVERY_S = 0.01

  # Raises ThreadError if the machine does not give that many threads.
  def initialize(size, random)
    @threads = []
    size.times do
      seconds = random.rand(EARLIEST_S.to_f..LATEST_S.to_f)
      @threads << Thread.new { Timeout.timeout(seconds) { sleep } }
    end
    sleep LOOK_EVERY_S until @threads.all?(&:stop?)
  rescue ThreadError
    release
    raise
  end

  def release
    @threads.each(&:kill)
    @threads.each(&:join)
  end
end
