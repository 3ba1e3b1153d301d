#include "harness/json.hpp"

#include <cmath>

namespace timerbench::harness {

namespace {

bool finite(const json& value) {
    return !value.is_number_float() || std::isfinite(value.get<double>());
}

const char* const not_finite = "not a finite number";

// Copies an array; true if something in it was not finite.
bool copy_array(const json& from, json& to) {
    bool lost = false;
    to = json::array();
    for (const json& element : from) {
        if (element.is_array()) {
            json inner;
            lost |= copy_array(element, inner);
            to.push_back(std::move(inner));
        } else if (!finite(element)) {
            to.push_back(nullptr);
            lost = true;
        } else {
            to.push_back(finite_only(element));
        }
    }
    return lost;
}

} // namespace

json finite_only(const json& value) {
    if (value.is_array()) {
        json copy;
        copy_array(value, copy);
        return copy;
    }
    if (!value.is_object())
        return finite(value) ? value : json(nullptr);
    json copy = json::object();
    for (const auto& [key, member] : value.items()) {
        bool lost = !finite(member);
        if (member.is_array()) {
            json inner;
            lost = copy_array(member, inner);
            copy[key] = std::move(inner);
        } else {
            copy[key] = finite_only(member);
        }
        const std::string reason_key = key + "_reason";
        if (lost && !value.contains(reason_key))
            copy[reason_key] = not_finite;
    }
    return copy;
}

std::string write_strict(const json& value, int indent) {
    return finite_only(value).dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string case_label(const json& case_point) {
    if (!case_point.is_object() || case_point.empty())
        return "default";
    std::string label;
    for (const auto& [key, member] : case_point.items()) {
        if (!label.empty())
            label += '/';
        std::string part = key + '=';
        part += member.is_string() ? member.get<std::string>() : write_strict(member);
        for (char& c : part) {
            const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                               c == '_' || c == '.' || c == '+' || c == '-' || c == '=';
            if (!plain)
                c = '_';
        }
        label += part;
    }
    return label;
}

} // namespace timerbench::harness
