# frozen_string_literal: true

require_relative "population"
require_relative "timeout_system"

# The costs of a pair: alone, among others, by several callers, in objects.
module Costs
  POPULATIONS = [0, 10_000, 1_000_000].freeze
  MOST_OTHERS = 10_000
  WORKERS = [1, 2, 4, 8].freeze
  BARE_CALLS = 200_000
  ALLOC_PAIRS = 200
  READY = { kind: "ready", duration_ms: 1000 }.freeze
  ARTICLE = { kind: "article", duration_ms: 1000 }.freeze
  TOO_MANY = "a waiting call holds a thread for its block: a million others would be a million threads or more"

  module_function

  def ready_path(visit)
    pairs = TimeoutSystem.calibrate
    above = []
    poll = []
    clocks = []
    visit.batches.times do
      bare = per_call_ns(BARE_CALLS) { |count| count.times { bare_call { nil } } }
      above << (per_call_ns(pairs) { |count| TimeoutSystem.pairs(count) } - bare)
      poll << bare
      clocks << TimeoutSystem.clock_cost_ns
    end
    visit.report.samples(TimeoutSystem::SERVICE, READY, "above_bare", "ns/op", above, clocks,
                         "#{pairs} calls a batch with the timeout, warmed up for 0.5 s")
    visit.report.samples(TimeoutSystem::SERVICE, READY, "poll", "ns/op", poll, clocks,
                         "a method that runs an empty block")
  end

  def arm_cancel(visit)
    pairs = TimeoutSystem.calibrate
    POPULATIONS.shuffle(random: visit.random).each do |population|
      cell = { kind: "article", population: population, duration_ms: 1000, regime: "saturating" }
      if population > MOST_OTHERS
        skip(visit, cell, TOO_MANY)
      else
        among(visit, cell, pairs, population)
      end
    end
  end

  def scaling(visit)
    pairs = TimeoutSystem.calibrate
    WORKERS.shuffle(random: visit.random).each do |workers|
      batches(visit, { workers: workers }, pairs, workers,
              "#{pairs} pairs a thread and batch, from the first start until the last is done; " \
              "one thread runs at a time")
    end
  end

  def allocs(visit)
    TimeoutSystem.pairs(ALLOC_PAIRS)
    objects = []
    clocks = []
    visit.batches.times do
      GC.start
      GC.disable
      before = GC.stat(:total_allocated_objects)
      TimeoutSystem.pairs(ALLOC_PAIRS)
      objects << ((GC.stat(:total_allocated_objects) - before) / ALLOC_PAIRS.to_f)
      GC.enable
      clocks << TimeoutSystem.clock_cost_ns
    end
    visit.report.samples(TimeoutSystem::SERVICE, ARTICLE, "allocations", "1/op", objects, clocks,
                         "objects of the interpreter, #{ALLOC_PAIRS} pairs a sample; stacks of threads are not objects")
    visit.report.skipped(TimeoutSystem::SERVICE, ARTICLE, "bytes", "B/op",
                         "the interpreter counts the objects, not the bytes that they and their threads take")
  end

  # A call that yields and does nothing else.
  def bare_call
    yield
  end

  def per_call_ns(count)
    start = TimeoutSystem.now_ns
    yield count
    (TimeoutSystem.now_ns - start) / count.to_f
  end

  def among(visit, cell, pairs, population)
    others = Population.new(population, visit.random)
    batches(visit, cell, pairs, 1, "#{pairs} timeouts around an empty block a batch, warmed up for 0.5 s")
    others.release
  rescue ThreadError => e
    skip(visit, cell, "this machine gave fewer threads than #{population} waiting calls need: #{e.message}")
  end

  # Samples of wall and CPU time a pair, by that many threads at once.
  def batches(visit, cell, pairs, workers, note)
    GC.start
    wall = []
    cpu = []
    clocks = []
    visit.batches.times do
      cpu_before = TimeoutSystem.process_cpu_ns
      wall << (elapsed_ns(workers, pairs) / pairs.to_f)
      cpu << ((TimeoutSystem.process_cpu_ns - cpu_before) / (pairs * workers).to_f)
      clocks << TimeoutSystem.clock_cost_ns
    end
    visit.report.samples(TimeoutSystem::SERVICE, cell, "arm_cancel", "ns/op", wall, clocks, note)
    visit.report.samples(TimeoutSystem::SERVICE, cell, "process_cpu", "ns/op", cpu, clocks)
  end

  # Starts the threads together and returns the time from the first start until the last is done.
  def elapsed_ns(workers, pairs)
    gate = Queue.new
    threads = Array.new(workers) do
      Thread.new do
        gate.pop
        start = TimeoutSystem.now_ns
        TimeoutSystem.pairs(pairs)
        [start, TimeoutSystem.now_ns]
      end
    end
    Thread.pass until threads.all?(&:stop?)
    workers.times { gate << :go }
    starts, ends = threads.map(&:value).transpose
    ends.max - starts.min
  end

  def skip(visit, cell, why)
    visit.report.skipped(TimeoutSystem::SERVICE, cell, "arm_cancel", "ns/op", why)
    visit.report.skipped(TimeoutSystem::SERVICE, cell, "process_cpu", "ns/op", why)
  end
end
