// bench_exact over services with planted flaws; test_exact.py starts it.
#include "experiments/exact_report.hpp"
#include "experiments/tests/exact/flawed_services.hpp"

int main(int argc, char** argv) {
    return timerbench::experiments::exact::run_exact<timerbench::testing::flawed_services>(argc, argv);
}
