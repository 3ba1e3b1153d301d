# frozen_string_literal: true

# The command line.
module Arguments
  # A user's mistake; the message says what was wrong and what would be right.
  class Mistake < StandardError; end

  LARGEST = (2**64) - 1

  Options = Struct.new(:mode, :experiment, :round, :seed, :full, :systems)

  # Returns Options. Raises a Mistake.
  def self.parse(words, experiments, services)
    options = Options.new(:visit, nil, nil, nil, nil, [])
    rest = words.dup
    until rest.empty?
      option = rest.shift
      case option
      when "--verify" then options.mode = :verify
      when "--list" then options.mode = :list
      when "--quick" then options.full = false
      when "--full" then options.full = true
      when "--experiment" then options.experiment = value(option, rest)
      when "--system" then options.systems << value(option, rest)
      when "--round" then options.round = number(option, rest)
      when "--seed" then options.seed = number(option, rest)
      else
        raise Mistake, "\"#{option}\" is no option; there are --experiment, --round, --seed, --quick, --full, " \
                       "--system, --verify and --list"
      end
    end
    complete(options, experiments, services) if options.mode == :visit
    options
  end

  def self.value(option, rest)
    raise Mistake, "#{option} wants a value after it" if rest.empty?

    rest.shift
  end
  private_class_method :value

  def self.number(option, rest)
    text = value(option, rest)
    return text.to_i if text.match?(/\A\d{1,20}\z/) && text.to_i <= LARGEST

    raise Mistake, "#{option} \"#{text}\" is no whole number from 0 to #{LARGEST}"
  end
  private_class_method :number

  def self.complete(options, experiments, services)
    known = "one of #{experiments.join(', ')}"
    raise Mistake, "--experiment is missing; #{known}" if options.experiment.nil?
    unless experiments.include?(options.experiment)
      raise Mistake, "--experiment \"#{options.experiment}\" is unknown; #{known}"
    end
    raise Mistake, "--round and --seed are wanted, each a number" if options.round.nil? || options.seed.nil?
    raise Mistake, "--quick or --full is wanted" if options.full.nil?

    options.systems.each do |part|
      next if services.any? { |service| service.include?(part) }

      raise Mistake, "--system \"#{part}\" matches none of #{services.join(', ')}"
    end
  end
  private_class_method :complete
end
