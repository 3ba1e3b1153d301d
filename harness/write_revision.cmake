# cmake -DSOURCE_DIR=... -DHEADER=... -P write_revision.cmake
# Writes the git revision of SOURCE_DIR and whether it has uncommitted changes; "unknown" outside git, or when the
# folder only lies inside somebody else's repository.
set(revision "unknown")
set(dirty "false")
find_program(git_program git)
if(git_program)
  execute_process(COMMAND "${git_program}" -C "${SOURCE_DIR}" rev-parse --show-toplevel
                  OUTPUT_VARIABLE toplevel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  file(REAL_PATH "${SOURCE_DIR}" source_path)
  if(NOT failed AND toplevel STREQUAL source_path)
    execute_process(COMMAND "${git_program}" -C "${SOURCE_DIR}" rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed)
      set(revision "no commit yet")
    else()
      set(revision "${head}")
    endif()
    execute_process(COMMAND "${git_program}" -C "${SOURCE_DIR}" status --porcelain
                    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed OR NOT changes STREQUAL "")
      set(dirty "true")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" @ONLY CONTENT [[
// Written at every build.
#pragma once

namespace timerbench::harness::build_facts {

inline constexpr const char* git_revision = "@revision@";
inline constexpr bool git_dirty = @dirty@;

} // namespace timerbench::harness::build_facts
]])
