# frozen_string_literal: true

# One visit of an experiment: how long it may take, its source of chance and where it reports.
class Visit
  BATCHES_QUICK = 5
  BATCHES_FULL = 10

  attr_reader :full, :random, :report

  def initialize(options, report)
    @full = options.full
    @random = Random.new((options.seed * 1_000_003) + options.round)
    @report = report
  end

  # Samples a case.
  def batches
    full ? BATCHES_FULL : BATCHES_QUICK
  end
end
