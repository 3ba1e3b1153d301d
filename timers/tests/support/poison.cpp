#include "timers/tests/support/erased.hpp"

#include <cstring>
#include <mutex>
#include <vector>

namespace timerbench::testing {
namespace {

// The storage of destroyed timers, while a poison_scope is alive.
struct quarantine {
    struct block {
        unsigned char* storage;
        std::size_t size;
        std::size_t align;
    };
    std::mutex mutex;
    bool open = false; // guarded by mutex, as is `blocks`
    std::vector<block> blocks;
};
constexpr unsigned char pattern = 0xA5;

quarantine& the_quarantine() {
    static quarantine q;
    return q;
}

void release(void* storage, std::size_t size, std::size_t align) {
    {
        quarantine& q = the_quarantine();
        const std::lock_guard lock{q.mutex};
        if (q.open) {
            std::memset(storage, pattern, size);
            q.blocks.push_back({static_cast<unsigned char*>(storage), size, align});
            return;
        }
    }
    ::operator delete (storage, std::align_val_t{align});
}

} // namespace

// Both forms allocate with an explicit alignment, so that one form of release fits them.
void* erased_service::timer_body::operator new(std::size_t size) {
    return ::operator new (size, std::align_val_t{__STDCPP_DEFAULT_NEW_ALIGNMENT__});
}
void* erased_service::timer_body::operator new(std::size_t size, std::align_val_t align) {
    return ::operator new(size, align);
}
void erased_service::timer_body::operator delete(void* storage, std::size_t size) {
    release(storage, size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void erased_service::timer_body::operator delete(void* storage, std::size_t size, std::align_val_t align) {
    release(storage, size, static_cast<std::size_t>(align));
}

poison_scope::poison_scope() {
    quarantine& q = the_quarantine();
    const std::lock_guard lock{q.mutex};
    q.open = true;
}

poison_scope::~poison_scope() {
    quarantine& q = the_quarantine();
    const std::lock_guard lock{q.mutex};
    q.open = false;
    for (const quarantine::block& b : q.blocks) {
        ::operator delete (b.storage, std::align_val_t{b.align});
    }
    q.blocks.clear();
}

poison_scope::findings poison_scope::inspect() const {
    quarantine& q = the_quarantine();
    const std::lock_guard lock{q.mutex};
    findings found;
    for (const quarantine::block& b : q.blocks) {
        bool intact = true;
        for (std::size_t i = 0; i < b.size; ++i) {
            intact = intact && b.storage[i] == pattern;
        }
        ++(intact ? found.intact : found.touched);
    }
    return found;
}

} // namespace timerbench::testing
