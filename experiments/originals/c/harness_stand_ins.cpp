// Two functions of the harness that its counting of memory calls, without the parts of the harness they stand in (options and
// environment, which need more libraries than this program).
#include "harness/environment.hpp"
#include "harness/options.hpp"

#include <charconv>

namespace timerbench::harness {

// This program is never built with a sanitizer.
std::string sanitizer_name() {
    return {};
}

std::optional<std::uint64_t> parse_whole_number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

} // namespace timerbench::harness
