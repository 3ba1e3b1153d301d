// The command line every bench binary understands, and the way an experiment adds flags of its own.
//
// CLI11 splits the words; values are checked here, so that whatever is wrong gives exactly one line on standard error
// - program, flag, the value that was wrong, what would be right - and exit code 2. Nothing here exits the process.
// Where it departs from common practice: --service takes one name each time it is given; a flag given twice keeps its
// last value (except --service and lists); numbers are decimal digits only (no sign, no exponent, no hex).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace timerbench::harness {

constexpr int exit_fine = 0;
constexpr int exit_check_failed = 1;
constexpr int exit_unusable_input = 2;
constexpr int exit_cannot_decide = 3;
constexpr int exit_interrupted = 130;

struct options {
    std::vector<std::string>
        services;                // chosen services in the order of the known list; all of them by default
    bool services_given = false; // --service was used
    bool quick = false;
    std::filesystem::path out = "out";
    std::uint64_t seed = 1;
    std::vector<std::string>
        benchmark_flags; // "--benchmark_..." words, checked, in order; see allow_benchmark_flags

    // Whether `name` is among the chosen services.
    [[nodiscard]] bool wants(std::string_view name) const;
    // A member picked by --quick: `rounds = opts.pick(60u, 6u)`.
    template <class T>
    [[nodiscard]] T pick(T full, T shortened) const {
        return quick ? shortened : full;
    }
};

class options_parser {
  public:
    // program: name printed in front of errors ("bench_arm_cancel"). question: one or two sentences for --help.
    // services: every name --service accepts, in list order.
    options_parser(std::string program, std::string question, std::vector<std::string> services);
    ~options_parser();
    options_parser(const options_parser&) = delete;
    options_parser& operator=(const options_parser&) = delete;

    // The functions below add flags of an experiment ("--rounds"). Targets keep their value unless the flag is given;
    // that value is shown as the default in --help. Targets must outlive parse().

    // A whole number in low..high.
    void add_number(const std::string& flag, std::uint64_t& target, std::uint64_t low, std::uint64_t high,
                    const std::string& help);
    // Whole numbers in low..high, separated by commas or by giving the flag again. They are a set that keeps the order
    // in which they were given: a number given again is dropped.
    void add_numbers(const std::string& flag, std::vector<std::uint64_t>& target, std::uint64_t low,
                     std::uint64_t high, const std::string& help);
    // A finite decimal number in low..high, '.' as the point whatever the locale.
    void add_real(const std::string& flag, double& target, double low, double high, const std::string& help);
    // One of the given words.
    void add_choice(const std::string& flag, std::string& target, std::vector<std::string> choices,
                    const std::string& help);
    // Present or not.
    void add_switch(const std::string& flag, bool& target, const std::string& help);

    // Accept Google Benchmark's flags (of its release 1.7), written --benchmark_NAME=VALUE; names and values are
    // checked here. Without this call they are unknown options.
    void allow_benchmark_flags();

    // Empty: go on. A value: return it from main (0 after --help, --list, --version; 2 after one line on `error`).
    [[nodiscard]] std::optional<int> parse(int argc, const char* const* argv, options& result);
    [[nodiscard]] std::optional<int> parse(int argc, const char* const* argv, options& result,
                                           std::ostream& output, std::ostream& error);

    [[nodiscard]] const std::string& program() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

// Which of `known` a --service word means: an exact name means itself and nothing else; otherwise a family means all
// of its variants ("hashed_wheel" for "hashed_wheel/10ms" and its like). Empty: unknown.
[[nodiscard]] std::vector<std::string> matching_services(const std::vector<std::string>& known,
                                                         std::string_view word);

// Decimal digits only, within 64 bits.
[[nodiscard]] std::optional<std::uint64_t> parse_whole_number(std::string_view text);
// A finite decimal number, '.' as the point.
[[nodiscard]] std::optional<double> parse_real_number(std::string_view text);

// Empty if `word` is a flag of Google Benchmark 1.7 with a value it takes; else what is wrong and what would be right.
[[nodiscard]] std::string refuse_benchmark_flag(std::string_view word);

} // namespace timerbench::harness
