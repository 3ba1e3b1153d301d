// Numbers on the command line of the examples: --name value.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace timerbench::examples {

struct number_option {
    std::string_view name;
    std::string_view what;
    long* value; // holds the default
    long least;
    long most;
};

/// Fills in what is given. Something unusable: one line on standard error, exit code 2. --help: exit code 0.
inline void read_options(int argc, char** argv, std::string_view program,
                         const std::vector<number_option>& options) {
    const auto refuse = [&](const std::string& why) {
        std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(program.size()), program.data(), why.c_str());
        std::exit(2);
    };
    for (int i = 1; i < argc; ++i) {
        const std::string_view given = argv[i];
        if (given == "--help") {
            for (const number_option& o : options) {
                std::printf("  --%-14.*s %.*s; %ld to %ld, %ld unless given\n",
                            static_cast<int>(o.name.size()), o.name.data(), static_cast<int>(o.what.size()),
                            o.what.data(), o.least, o.most, *o.value);
            }
            std::exit(0);
        }
        const number_option* option = nullptr;
        for (const number_option& o : options) {
            if (given.substr(0, 2) == "--" && given.substr(2) == o.name) {
                option = &o;
            }
        }
        if (option == nullptr) {
            refuse("unknown option '" + std::string{given} + "'; --help lists them");
            return;
        }
        const std::string_view text = i + 1 < argc ? argv[++i] : "";
        long value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc{} || end != text.data() + text.size() || value < option->least ||
            value > option->most) {
            refuse("--" + std::string{option->name} + " is '" + std::string{text} + "'; give " +
                   std::to_string(option->least) + " to " + std::to_string(option->most));
        }
        *option->value = value;
    }
}

} // namespace timerbench::examples
