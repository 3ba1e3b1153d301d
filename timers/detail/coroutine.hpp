// <coroutine>, also where clang before 16 and the header of libstdc++ disagree about how the compiler announces what it can do.
#pragma once

#if defined(__clang__) && !defined(__cpp_impl_coroutine)
#if __clang_major__ < 14
#error "coroutines need gcc 12 or clang 14"
#endif
#define __cpp_impl_coroutine 201902L // NOLINT: what later releases of clang define themselves
#include <coroutine>
#undef __cpp_impl_coroutine
#else
#include <coroutine>
#endif
