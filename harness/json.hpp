// The JSON value the harness uses everywhere: objects keep the order in which their members were written, so that
// a report reads top-down and the same run gives the same bytes.
//
// write_strict() is the only way a value becomes text here. It never writes NaN or infinity (strict parsers refuse
// them): such a number becomes null, and the object that holds it gains a member `<key>_reason`. Bytes that are not
// UTF-8 become U+FFFD. The text does not depend on the C or C++ locale.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace timerbench::harness {

using json = nlohmann::ordered_json;

// A copy without non-finite numbers: in an object they become null beside `<key>_reason`; in an array they become
// null, and the nearest object around it gains `<key>_reason`.
[[nodiscard]] json finite_only(const json& value);

// Text of finite_only(value). indent < 0: one line.
[[nodiscard]] std::string write_strict(const json& value, int indent = -1);

// A label made from the members of a case object, fit for a benchmark's name: "kind=article/population=0". An empty
// object gives "default". Characters outside [A-Za-z0-9_.+-=] become '_'.
[[nodiscard]] std::string case_label(const json& case_point);

} // namespace timerbench::harness
