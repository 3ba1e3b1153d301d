#include "experiments/originals/common/accuracy.hpp"
#include "experiments/originals/ours/systems.hpp"

namespace timerbench::originals {

void add_accuracy_cells(std::vector<cell>& cells, const arguments& given) {
    for_each_system(given, [&]<class Entry>() { add_accuracy<Entry>(cells, given); });
}

} // namespace timerbench::originals
