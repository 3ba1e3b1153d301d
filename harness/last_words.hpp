// What a program says when an exception leaves it: one line and an exit code, no core dump. Threads or memory that the machine refuses are
// limits of its surroundings, not defects, and surface anywhere, in threads that nobody could catch them in.
#pragma once

#include <string>

namespace timerbench::harness {

/// From now on an exception that nobody catches, in any thread, ends the process with one line on standard error that begins with
/// `program`. Exit code 2 where the machine refused a thread, a descriptor or memory, otherwise 1.
void speak_last_words_as(std::string program);

} // namespace timerbench::harness
