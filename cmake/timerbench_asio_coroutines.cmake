# Sets TIMERBENCH_ASIO_COROUTINES: whether this compiler and this Boost.Asio have coroutines together.
find_package(Boost 1.74 QUIET)
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES Boost::headers)
set(CMAKE_REQUIRED_FLAGS "${CMAKE_CXX20_STANDARD_COMPILE_OPTION}")
check_cxx_source_compiles("#include <boost/asio/detail/config.hpp>
#if !defined(BOOST_ASIO_HAS_CO_AWAIT)
#error none
#endif
int main() {}" TIMERBENCH_ASIO_COROUTINES)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_FLAGS)
