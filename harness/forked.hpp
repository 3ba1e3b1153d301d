// Runs a function in a forked child and hands back the text that it returns: for what can only be measured in a fresh
// process, such as resident memory, which an allocator rarely gives back.
//
// The child is a copy of the calling process, which must have a single thread. It dies with its parent, runs no destructors and no
// exit handlers, and writes nothing but its result. Costs one fork (some 100 us, and a page fault for each page that
// either side writes first) and one pipe.
#pragma once

#include "harness/function_ref.hpp"

#include <chrono>
#include <string>

namespace timerbench::harness {

struct forked_result {
    std::string output; // what the function returned
    std::string
        error; // why there is nothing: exception, signal, time limit, interrupt; empty: it has returned
};

// Returns when the child has ended; it is killed when `limit` has passed and when the run is interrupted.
[[nodiscard]] forked_result run_in_child(function_ref<std::string()> body, std::chrono::milliseconds limit);

} // namespace timerbench::harness
