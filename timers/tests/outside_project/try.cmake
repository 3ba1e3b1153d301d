# Installs the library into the build folder, then configures, builds and runs the outside project against it.
#   cmake -D BINARY=<build folder> -D SOURCE=<outside project> -D COMPILER=<C++ compiler> -D GENERATOR=<generator> -P try.cmake
foreach(needed BINARY SOURCE COMPILER GENERATOR)
  if(NOT DEFINED ${needed})
    message(FATAL_ERROR "give -D ${needed}=...")
  endif()
endforeach()
set(work "${BINARY}/outside_project")
file(REMOVE_RECURSE "${work}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGV}\nended with ${code}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run("${CMAKE_COMMAND}" --install "${BINARY}" --prefix "${work}/installed")
# No package but the installed one is offered, and none of this project's flags.
run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${work}/build" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_PREFIX_PATH=${work}/installed" -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${work}/build")
run("${work}/build/outside")
if(NOT output MATCHES "fired")
  message(FATAL_ERROR "the outside project printed: ${output}")
endif()
