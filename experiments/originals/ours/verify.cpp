#include "experiments/originals/common/verify.hpp"
#include "experiments/originals/ours/systems.hpp"

namespace timerbench::originals {

std::vector<check> verify_all(const arguments& given) {
    std::vector<check> all;
    for_each_system(given, [&]<class Entry>() {
        for (check& one : verify<Entry>()) {
            all.push_back(std::move(one));
        }
    });
    return all;
}

} // namespace timerbench::originals
