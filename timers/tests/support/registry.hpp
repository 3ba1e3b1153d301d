// The services that the conformance tests run over: those of the list, two sound specimens, and on request the specimens
// with a planted defect.
#pragma once

#include "timers/tests/support/erased.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace timerbench::testing {

struct kind {
    std::string_view name;
    std::unique_ptr<erased_service> (*make)();
    /// Null where the service takes no clock. The clock outlives the service.
    std::unique_ptr<erased_service> (*make_on)(manual_time& clock);
    /// Why it cannot be made on this machine; empty if it can.
    std::string_view unavailable{};
};

/// Specimens with a defect are part of it only while the environment names them, so that they are never listed.
inline constexpr const char* show_defects_variable = "TIMERBENCH_TEST_SHOW_DEFECTS";

[[nodiscard]] const std::vector<kind>& kinds();
[[nodiscard]] const kind& kind_named(std::string_view name);
[[nodiscard]] std::vector<std::string_view> kind_names();

/// The name with every character that a test's name cannot hold replaced by an underscore.
[[nodiscard]] std::string test_name_of(std::string_view name);

} // namespace timerbench::testing
