#include "harness/options.hpp"

#include "harness/environment.hpp"
#include "harness/last_words.hpp"

#include <algorithm>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <limits>
#include <memory>

namespace timerbench::harness {

namespace {

std::string joined(const std::vector<std::string>& words) {
    return fmt::format("{}", fmt::join(words, ", "));
}

// A value as an error line shows it: quoted, one line, not endless.
std::string in_quotes(std::string_view value) {
    std::string shown;
    for (const char c : value.substr(0, 80))
        shown += (c >= ' ' && c != 127) ? c : '?';
    return "'" + shown + (value.size() > 80 ? "...'" : "'");
}

std::string refuse_number(std::string_view text, std::uint64_t low, std::uint64_t high,
                          std::uint64_t& value) {
    const auto parsed = parse_whole_number(text);
    const auto range = fmt::format("give {} to {}", low, high);
    const bool digits =
        !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!parsed && !digits)
        return in_quotes(text) + " is not a whole number; " + range;
    if (!parsed || *parsed < low || *parsed > high)
        return in_quotes(text) + " is out of range; " + range;
    value = *parsed;
    return {};
}

} // namespace

bool options::wants(std::string_view name) const {
    return std::find(services.begin(), services.end(), name) != services.end();
}

std::optional<std::uint64_t> parse_whole_number(std::string_view text) {
    if (text.empty() || text.front() < '0' || text.front() > '9')
        return std::nullopt;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

std::optional<double> parse_real_number(std::string_view text) {
    if (text.empty())
        return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

std::vector<std::string> matching_services(const std::vector<std::string>& known, std::string_view word) {
    if (std::find(known.begin(), known.end(), word) != known.end())
        return {std::string(word)};
    std::vector<std::string> family;
    const std::string prefix = std::string(word) + '/';
    if (!word.empty())
        for (const auto& name : known)
            if (name.starts_with(prefix))
                family.push_back(name);
    return family;
}

std::string refuse_benchmark_flag(std::string_view word) {
    enum class kind { boolean, count, seconds, text, pairs, format, unit, colour };
    struct flag {
        std::string_view name;
        kind type;
    };
    static constexpr flag flags[] = {
        {"--benchmark_list_tests", kind::boolean},
        {"--benchmark_filter", kind::text},
        {"--benchmark_min_time", kind::seconds},
        {"--benchmark_min_warmup_time", kind::seconds},
        {"--benchmark_repetitions", kind::count},
        {"--benchmark_enable_random_interleaving", kind::boolean},
        {"--benchmark_report_aggregates_only", kind::boolean},
        {"--benchmark_display_aggregates_only", kind::boolean},
        {"--benchmark_format", kind::format},
        {"--benchmark_out", kind::text},
        {"--benchmark_out_format", kind::format},
        {"--benchmark_color", kind::colour},
        {"--benchmark_counters_tabular", kind::boolean},
        {"--benchmark_context", kind::pairs},
        {"--benchmark_time_unit", kind::unit},
    };
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    const auto* found =
        std::find_if(std::begin(flags), std::end(flags), [&](const flag& f) { return f.name == name; });
    if (found == std::end(flags)) {
        std::vector<std::string> names;
        for (const auto& one : flags)
            names.emplace_back(one.name);
        return in_quotes(name) + " is not an option; give one of " + joined(names);
    }
    const auto one_of = [&](std::string_view value, std::vector<std::string> words) -> std::string {
        if (std::find(words.begin(), words.end(), value) != words.end())
            return {};
        return std::string(name) + ": " + in_quotes(value) + " is not accepted; give one of " + joined(words);
    };
    if (equals == std::string_view::npos)
        return found->type == kind::boolean
                   ? std::string()
                   : std::string(name) + ": a value is missing; give " + std::string(name) + "=VALUE";
    const auto value = word.substr(equals + 1);
    switch (found->type) {
    case kind::boolean:
        return one_of(value, {"true", "false", "yes", "no", "on", "off", "1", "0"});
    case kind::format:
        return one_of(value, {"console", "json", "csv"});
    case kind::unit:
        return one_of(value, {"ns", "us", "ms", "s"});
    case kind::colour:
        return one_of(value, {"auto", "true", "false", "yes", "no", "on", "off", "1", "0"});
    case kind::count: {
        std::uint64_t number = 0;
        const auto problem = refuse_number(value, 1, 100'000, number);
        return problem.empty() ? problem : std::string(name) + ": " + problem;
    }
    case kind::seconds: {
        const auto number = parse_real_number(value);
        const bool zero_ok = name == "--benchmark_min_warmup_time";
        if (number && (*number > 0 || (zero_ok && *number == 0)) && *number <= 3600)
            return {};
        return std::string(name) + ": " + in_quotes(value) + " is not accepted; give seconds " +
               (zero_ok ? "from 0 to 3600" : "above 0, at most 3600");
    }
    case kind::pairs: {
        const auto pair_equals = value.find('=');
        if (pair_equals != std::string_view::npos && pair_equals > 0)
            return {};
        return std::string(name) + ": " + in_quotes(value) +
               " is not accepted; give KEY=VALUE pairs separated by commas";
    }
    case kind::text:
        break;
    }
    return value.empty() ? std::string(name) + ": the value is empty; give " + std::string(name) + "=VALUE"
                         : std::string();
}

struct options_parser::state {
    struct flag {
        std::string name;
        std::vector<std::string> raw;
        CLI::Option* option = nullptr;
        std::function<std::string(const std::vector<std::string>&)> apply; // what is wrong, empty if nothing
        std::string expects;                                               // for a missing value
    };

    explicit state(std::string name, std::string question)
        : program(std::move(name)),
          app(std::move(question), program) {
        app.set_help_flag("--help", "Print this and exit");
        app.allow_extras(); // reported by parse(), the first of them by name
    }

    flag& add(const std::string& name, const std::string& value_name, const std::string& shown_default,
              const std::string& help, const std::string& expects, bool repeatable,
              std::function<std::string(const std::vector<std::string>&)> apply) {
        flags.push_back(std::make_unique<flag>());
        flag& added = *flags.back();
        added.name = name;
        added.apply = std::move(apply);
        added.expects = expects;
        added.option = app.add_option(name, added.raw, help);
        // Value names are written by formatter, so that no default text of CLI11 can slip in.
        added.option->type_name(value_name)
            ->expected(1, repeatable ? CLI::detail::expected_max_vector_size : 1);
        added.option->allow_extra_args(false);
        added.option->multi_option_policy(repeatable ? CLI::MultiOptionPolicy::TakeAll
                                                     : CLI::MultiOptionPolicy::TakeLast);
        if (!shown_default.empty())
            added.option->default_str(shown_default);
        return added;
    }

    [[nodiscard]] std::string names() const {
        std::vector<std::string> all;
        for (const CLI::Option* option : app.get_options())
            all.push_back(option->get_name());
        if (benchmark_flags)
            all.emplace_back("--benchmark_...");
        return joined(all);
    }

    // One line for what CLI11 could not split.
    [[nodiscard]] std::string explain(const CLI::ParseError& problem) const {
        for (const auto& one : flags) {
            const bool named = std::string(problem.what()).find(one->name) != std::string::npos;
            if (problem.get_name() == "ArgumentMismatch" && named)
                return one->name + ": a value is missing; give " + one->expects;
        }
        std::string text = problem.what();
        std::replace(text.begin(), text.end(), '\n', ' ');
        return text + "; see --help";
    }

    // A switch that was given a value: CLI11 would take some of them, and --quick=0 is no quick run. Empty if there is none.
    [[nodiscard]] std::string switch_with_value(const std::vector<std::string>& words) const {
        for (const auto& word : words) {
            const auto equals = word.find('=');
            if (equals == std::string::npos)
                continue;
            const std::string name = word.substr(0, equals);
            if (name == "--help" || std::find(switches.begin(), switches.end(), name) != switches.end())
                return name + ": " + in_quotes(word.substr(equals + 1)) + " is not accepted; give " + name +
                       " alone";
        }
        return {};
    }

    std::string program;
    CLI::App app;
    std::vector<std::unique_ptr<flag>> flags;
    std::vector<std::string> switches;
    std::vector<std::string> services;
    options values;
    std::string out = "out";
    bool list = false;
    bool version = false;
    bool benchmark_flags = false;
};

options_parser::options_parser(std::string program, std::string question, std::vector<std::string> services)
    : state_(std::make_unique<state>(std::move(program), std::move(question))) {
    state& self = *state_;
    self.services = std::move(services);
    self.values.services = self.services;
    self.add("--service", "NAME", "",
             "Measure only this service or family; may be given again (default: all)",
             "one of " + joined(self.services), true,
             [&self](const std::vector<std::string>& names) -> std::string {
                 std::vector<std::string> chosen;
                 for (const auto& word : names) {
                     const auto found = matching_services(self.services, word);
                     if (found.empty())
                         return in_quotes(word) + " is not a service; give one of " + joined(self.services);
                     chosen.insert(chosen.end(), found.begin(), found.end());
                 }
                 self.values.services.clear();
                 for (const auto& name : self.services)
                     if (std::find(chosen.begin(), chosen.end(), name) != chosen.end())
                         self.values.services.push_back(name);
                 self.values.services_given = true;
                 return {};
             });
    add_switch("--list", self.list, "Print the names of the services and exit");
    add_switch("--quick", self.values.quick, "Few samples: shows that everything runs, not what it costs");
    self.add("--out", "DIR", "out", "Folder for the reports; made if missing", "a folder", false,
             [&self](const std::vector<std::string>& values) -> std::string {
                 if (values.back().empty())
                     return "the value is empty; give a folder";
                 self.values.out = values.back();
                 return {};
             });
    add_number("--seed", self.values.seed, 0, std::numeric_limits<std::uint64_t>::max(),
               "Seed of everything random here");
    add_switch("--version", self.version, "Print version and revision and exit");
}

options_parser::~options_parser() = default;

const std::string& options_parser::program() const {
    return state_->program;
}

void options_parser::add_number(const std::string& flag, std::uint64_t& target, std::uint64_t low,
                                std::uint64_t high, const std::string& help) {
    // What is not a value that could be given stands for "left out", and the help text says what that means.
    const std::string shown = target < low ? std::string{} : std::to_string(target);
    state_->add(flag, "N", shown, help, fmt::format("{} to {}", low, high), false,
                [&target, low, high](const std::vector<std::string>& values) {
                    return refuse_number(values.back(), low, high, target);
                });
}

void options_parser::add_numbers(const std::string& flag, std::vector<std::uint64_t>& target,
                                 std::uint64_t low, std::uint64_t high, const std::string& help) {
    state_->add(flag, "N[,N...]", fmt::format("{}", fmt::join(target, ",")), help,
                fmt::format("numbers from {} to {}, separated by commas", low, high), true,
                [&target, low, high](const std::vector<std::string>& values) -> std::string {
                    std::vector<std::uint64_t> numbers;
                    for (const std::string_view list : values) {
                        std::size_t begin = 0;
                        while (true) {
                            const auto comma = std::min(list.find(',', begin), list.size());
                            std::uint64_t number = 0;
                            const auto problem =
                                refuse_number(list.substr(begin, comma - begin), low, high, number);
                            if (!problem.empty())
                                return problem;
                            if (std::find(numbers.begin(), numbers.end(), number) == numbers.end())
                                numbers.push_back(number);
                            if (comma == list.size())
                                break;
                            begin = comma + 1;
                        }
                    }
                    target = std::move(numbers);
                    return {};
                });
}

void options_parser::add_real(const std::string& flag, double& target, double low, double high,
                              const std::string& help) {
    const std::string range = fmt::format("{} to {}", low, high);
    state_->add(flag, "X", fmt::format("{}", target), help, range, false,
                [&target, low, high, range](const std::vector<std::string>& values) -> std::string {
                    const auto number = parse_real_number(values.back());
                    if (!number)
                        return in_quotes(values.back()) + " is not a number; give " + range;
                    if (*number < low || *number > high)
                        return in_quotes(values.back()) + " is out of range; give " + range;
                    target = *number;
                    return {};
                });
}

void options_parser::add_choice(const std::string& flag, std::string& target,
                                std::vector<std::string> choices, const std::string& help) {
    const std::string listed = joined(choices);
    const std::string all = "one of " + listed;
    state_->add(
        flag, "WORD", target, help + " (" + listed + ")", all, false,
        [&target, all, choices = std::move(choices)](const std::vector<std::string>& values) -> std::string {
            if (std::find(choices.begin(), choices.end(), values.back()) == choices.end())
                return in_quotes(values.back()) + " is not accepted; give " + all;
            target = values.back();
            return {};
        });
}

void options_parser::add_switch(const std::string& flag, bool& target, const std::string& help) {
    state_->switches.push_back(flag);
    state_->app.add_flag(flag, target, help);
}

void options_parser::allow_benchmark_flags() {
    state_->benchmark_flags = true;
    state_->app.footer(
        "Google Benchmark's flags are accepted too, written --benchmark_NAME=VALUE: --benchmark_filter, "
        "--benchmark_list_tests, --benchmark_repetitions, --benchmark_min_time, --benchmark_out, ...");
}

std::optional<int> options_parser::parse(int argc, const char* const* argv, options& result) {
    speak_last_words_as(state_->program);
    return parse(argc, argv, result, std::cout, std::cerr);
}

std::optional<int> options_parser::parse(int argc, const char* const* argv, options& result,
                                         std::ostream& output, std::ostream& error) {
    state& self = *state_;
    const auto refuse = [&](const std::string& problem) {
        error << self.program << ": " << problem << std::endl;
        return exit_unusable_input;
    };
    const auto tell = [&](const std::string& text) {
        return output << text << std::flush ? exit_fine : refuse("standard output cannot be written");
    };

    std::vector<std::string> words;
    for (int i = 1; i < argc; ++i) {
        std::string word = argv[i];
        if (self.benchmark_flags && word.starts_with("--benchmark_")) {
            if (const auto problem = refuse_benchmark_flag(word); !problem.empty())
                return refuse(problem);
            self.values.benchmark_flags.push_back(std::move(word));
        } else {
            words.push_back(std::move(word));
        }
    }
    if (const auto problem = self.switch_with_value(words); !problem.empty())
        return refuse(problem);
    try {
        std::vector<std::string> reversed(words.rbegin(), words.rend()); // the order CLI11 consumes them in
        self.app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
        return tell(self.app.help());
    } catch (const CLI::ParseError& problem) {
        return refuse(self.explain(problem));
    }
    if (const auto extras = self.app.remaining(); !extras.empty())
        return refuse(in_quotes(extras.front()) + " is not an option; give one of " + self.names());
    if (self.version) {
        return tell(self.program + ": " + version_line() + "\n");
    }
    if (self.list) {
        std::string names;
        for (const auto& name : self.services)
            names += name + "\n";
        return tell(names);
    }
    for (const auto& flag : self.flags)
        if (flag->option->count() > 0)
            if (const auto problem = flag->apply(flag->raw); !problem.empty())
                return refuse(flag->name + ": " + problem);
    result = self.values;
    return std::nullopt;
}

} // namespace timerbench::harness
