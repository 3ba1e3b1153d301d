#include "experiments/originals/common/memory.hpp"
#include "experiments/originals/ours/systems.hpp"

namespace timerbench::originals {

void add_memory_cells(std::vector<cell>& cells, const arguments& given) {
    for_each_system(given, [&]<class Entry>() { add_memory<Entry>(cells, given); });
}

} // namespace timerbench::originals
