#include "harness/last_words.hpp"

#include "harness/options.hpp"

#include <cstdio>
#include <exception>
#include <new>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace timerbench::harness {

namespace {

// Written before threads start, read by the handler.
std::string speaker;

[[noreturn]] void end(const char* what, const char* advice, int code) noexcept {
    std::fprintf(stderr, "%s: %s%s\n", speaker.c_str(), what, advice);
    _exit(code);
}

[[noreturn]] void last_words() noexcept {
    const std::exception_ptr cause = std::current_exception();
    if (!cause) {
        end("ended without an exception, which is a defect of this program", "", 1);
    }
    try {
        std::rethrow_exception(cause);
    } catch (const std::system_error& e) {
        const bool refused = e.code() == std::errc::resource_unavailable_try_again ||
                             e.code() == std::errc::too_many_files_open;
        if (refused) {
            end(e.what(),
                ": the machine refused one more thread or descriptor; allow more of them (ulimit -u, ulimit "
                "-n), "
                "or measure with fewer",
                exit_unusable_input);
        }
        end(e.what(), "", 1);
    } catch (const std::bad_alloc&) {
        end("there is not enough memory for these sizes", "", exit_unusable_input);
    } catch (const std::exception& e) {
        end(e.what(), "", 1);
    } catch (...) {
        end("ended by something that is no exception, which is a defect of this program", "", 1);
    }
}

} // namespace

void speak_last_words_as(std::string program) {
    speaker = std::move(program);
    std::set_terminate(last_words);
}

} // namespace timerbench::harness
