# frozen_string_literal: true

require "timeout"

# Timeout.timeout and the clocks it is measured with.
module TimeoutSystem
  SERVICE = "original/ruby/timeout"
  PAIR_S = 1
  WARM_S = 0.5
  BATCH_S = 0.01
  CHUNK = 20
  FEWEST_PAIRS = 50
  CHEAP_PAIR_S = 10e-6
  FEWEST_CHEAP_PAIRS = 1_000
  READINGS = 1_000

  module_function

  # Threads that two waiting calls need beside their callers: two, or the one that all share.
  def thread_per_call?
    before = Thread.list.size
    Timeout.timeout(PAIR_S) { Timeout.timeout(PAIR_S) { Thread.list.size - before } } == 2
  end

  def versions
    { ruby: RUBY_DESCRIPTION, timeout: Timeout::VERSION,
      timeout_threads: thread_per_call? ? "a thread for each call" : "one thread shared by all calls" }
  end

  # Pairs: a timeout around a block that is done at once.
  def pairs(count)
    count.times { Timeout.timeout(PAIR_S) { nil } }
  end

  # Returns how late the timeout of a block that sleeps was seen, ms; nil if the block came to an end.
  def lateness_ms(duration_ms)
    armed = now_ns
    Timeout.timeout(duration_ms / 1e3) { sleep }
    nil
  rescue Timeout::Error
    ((now_ns - armed) / 1e6) - duration_ms
  end

  def now_ns
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  end

  def process_cpu_ns
    Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
  end

  # What one reading of the clock costs now, ns.
  def clock_cost_ns
    start = now_ns
    READINGS.times { now_ns }
    (now_ns - start) / READINGS.to_f
  end

  # Resident memory of the process, bytes.
  def resident_bytes
    File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024
  end

  # Runs pairs for half a second. Returns how many make a batch of about 10 ms.
  def calibrate
    chunks = []
    deadline = now_ns + (WARM_S * 1e9)
    while now_ns < deadline
      start = now_ns
      pairs(CHUNK)
      chunks << ((now_ns - start) / 1e9 / CHUNK)
    end
    pair_s = chunks.sort[chunks.size / 2]
    fewest = pair_s < CHEAP_PAIR_S ? FEWEST_CHEAP_PAIRS : FEWEST_PAIRS
    [fewest, (BATCH_S / pair_s).round].max
  end
end
