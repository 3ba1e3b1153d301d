#include "experiments/originals/common/arm_cancel.hpp"
#include "experiments/originals/ours/systems.hpp"

namespace timerbench::originals {

void add_arm_cancel_cells(std::vector<cell>& cells, const arguments& given) {
    for_each_system(given, [&]<class Entry>() { add_arm_cancel<Entry>(cells, given); });
}

} // namespace timerbench::originals
