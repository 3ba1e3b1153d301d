# frozen_string_literal: true

require "json"

# The JSON lines of a visit, each written as soon as it is known.
class Report
  # Standard output cannot be written: nothing is worth measuring any more.
  class Unwritable < StandardError; end

  attr_reader :failed_checks

  def initialize(out)
    @out = out
    @out.sync = true # a write that fails says so at once, not when Ruby ends
    @failed_checks = 0
  end

  # A line as it is.
  def text(line)
    @out.write("#{line}\n")
  rescue SystemCallError => e
    raise Unwritable, "standard output cannot be written: #{e.message}"
  end

  def versions(versions)
    line(versions: versions)
  end

  # Batch means, with the clock's cost beside each. An empty note is left out.
  def samples(service, cell, metric, unit, samples, clock_ns, note = "")
    row = { service: service, case: cell, metric: metric, unit: unit,
            samples: samples.map { |value| value.round(6) }, clock_ns: clock_ns.map { |value| value.round(6) } }
    row[:note] = note unless note.empty?
    line(row: row.merge(single_events: false))
  end

  # One sample an event; the clock's cost is the same for all.
  def events(service, cell, metric, unit, samples, clock_ns, note)
    line(row: { service: service, case: cell, metric: metric, unit: unit,
                samples: samples.map { |value| value.round(6) }, clock_ns: [clock_ns.round(6)] * samples.size,
                note: note, single_events: true })
  end

  def skipped(service, cell, metric, unit, why)
    line(row: { service: service, case: cell, metric: metric, unit: unit, skipped: why })
  end

  def error(service, cell, metric, unit, why)
    line(row: { service: service, case: cell, metric: metric, unit: unit, error: why })
  end

  def check(name, service, passed, detail)
    @failed_checks += 1 unless passed
    line(check: { name: name, service: service, ok: passed, detail: detail })
  end

  private

  def line(object)
    text(JSON.generate(object))
  end
end
