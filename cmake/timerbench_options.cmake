# What every target of this project is compiled with. Linked PRIVATE, so that nobody who embeds the
# timers library inherits our warnings.
add_library(timerbench_options INTERFACE)
target_compile_features(timerbench_options INTERFACE cxx_std_20)
target_include_directories(timerbench_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(timerbench_options INTERFACE -Wall -Wextra -Wpedantic)
if(TIMERBENCH_WERROR)
  target_compile_options(timerbench_options INTERFACE -Werror)
endif()

if(TIMERBENCH_SANITIZE STREQUAL "address")
  # A null pointer traps by itself and the address part sees the end of an object; there are no virtual functions to speak of. These
  # three checks alone would take a quarter of the time that it takes to compile.
  set(timerbench_sanitizer_flags -fsanitize=address,undefined -fno-sanitize=null,object-size,vptr -fno-sanitize-recover=all
                                 -fno-omit-frame-pointer)
elseif(TIMERBENCH_SANITIZE STREQUAL "thread")
  set(timerbench_sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
  # gcc's thread sanitizer does not model stand-alone fences and says so for each one inside Asio.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(timerbench_options INTERFACE -Wno-tsan)
  endif()
elseif(NOT TIMERBENCH_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TIMERBENCH_SANITIZE is '${TIMERBENCH_SANITIZE}'; give nothing, 'address' or 'thread'")
endif()
if(timerbench_sanitizer_flags)
  # gcc's own manual warns of false alarms here: instrumented code hides from it what is initialised.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(timerbench_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_compile_options(timerbench_options INTERFACE ${timerbench_sanitizer_flags})
  target_link_options(timerbench_options INTERFACE ${timerbench_sanitizer_flags})
endif()
