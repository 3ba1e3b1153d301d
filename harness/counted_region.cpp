#include "harness/counted_region.hpp"

extern "C" {

[[gnu::noinline]] void timerbench_counted_region(void (*body)(void* context), void* context) {
    body(context);
    // Something to return to: a jump into the body would end the region before it began.
    asm volatile("" : : : "memory");
}

[[gnu::noinline]] void timerbench_region_ended() {
    asm volatile("" : : : "memory");
}
}
