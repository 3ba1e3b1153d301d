#include "experiments/originals/common/scaling.hpp"
#include "experiments/originals/ours/systems.hpp"

namespace timerbench::originals {

void add_scaling_cells(std::vector<cell>& cells, const arguments& given) {
    for_each_system(given, [&]<class Entry>() { add_scaling<Entry>(cells, given); });
}

} // namespace timerbench::originals
