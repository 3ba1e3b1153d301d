#include "harness/process_status.hpp"

#include "harness/options.hpp"

#include <fstream>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>

namespace timerbench::harness {

namespace {

std::optional<std::string> slurp(const char* path) {
    std::ifstream file(path);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file || text.empty())
        return std::nullopt;
    return text;
}

std::string_view first_word(std::string_view text) {
    constexpr std::string_view blanks = " \t";
    const auto begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos)
        return {};
    text.remove_prefix(begin);
    return text.substr(0, text.find_first_of(" \t\n"));
}

std::uint64_t voluntary(int who) {
    rusage usage{};
    getrusage(who, &usage);
    return static_cast<std::uint64_t>(usage.ru_nvcsw);
}

} // namespace

std::optional<std::uint64_t> status_field(std::string_view text, std::string_view name) {
    while (!text.empty()) {
        const auto end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':')
            return parse_whole_number(first_word(line.substr(name.size() + 1)));
        if (end == std::string_view::npos)
            break;
        text.remove_prefix(end + 1);
    }
    return std::nullopt;
}

std::optional<std::uint64_t> resident_pages(std::string_view statm) {
    const std::string_view size = first_word(statm);
    if (!parse_whole_number(size))
        return std::nullopt;
    statm.remove_prefix(static_cast<std::size_t>(size.data() - statm.data()) + size.size());
    return parse_whole_number(first_word(statm));
}

std::optional<resident_memory> read_resident_memory() {
    if (const auto text = slurp("/proc/self/smaps_rollup"))
        if (const auto kilobytes = status_field(*text, "Rss"))
            return resident_memory{*kilobytes * 1024, "/proc/self/smaps_rollup"};
    if (const auto text = slurp("/proc/self/statm"))
        if (const auto pages = resident_pages(*text))
            return resident_memory{*pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)),
                                   "/proc/self/statm"};
    return std::nullopt;
}

std::optional<std::uint64_t> read_thread_count() {
    const auto text = slurp("/proc/self/status");
    return text ? status_field(*text, "Threads") : std::nullopt;
}

sleep_counts read_sleep_counts() {
    // The caller's own first: if it sleeps in between, that must not be taken for another thread's.
    const std::uint64_t all = voluntary(RUSAGE_SELF);
    const std::uint64_t caller = voluntary(RUSAGE_THREAD);
    return {caller, all > caller ? all - caller : 0};
}

} // namespace timerbench::harness
