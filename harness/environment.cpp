#include "harness/environment.hpp"

#include "harness/build_facts.hpp"
#include "harness/revision.hpp"
#include "harness/text_table.hpp"

#include <algorithm>
#include <CLI/Version.hpp>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gnu/libc-version.h>
#include <locale>
#include <sched.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#if __has_include(<boost/version.hpp>)
#include <boost/version.hpp>
#endif
#if __has_include(<event2/event-config.h>)
#include <event2/event-config.h>
#endif

namespace timerbench::harness {

namespace {

const char* const unknown = "unknown";

std::ifstream open_plain(const std::filesystem::path& path) {
    std::ifstream file(path);
    file.imbue(std::locale::classic());
    return file;
}

std::string first_line(const std::filesystem::path& path) {
    auto file = open_plain(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string trimmed(const std::string& text) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos)
        return {};
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

struct cpu_facts {
    std::string model = unknown;
    bool hypervisor = false;
    std::vector<double> mhz;
};

cpu_facts read_cpuinfo() {
    cpu_facts facts;
    auto file = open_plain("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const auto colon = line.find(':');
        if (colon == std::string::npos)
            continue;
        const std::string key = trimmed(line.substr(0, colon));
        const std::string value = trimmed(line.substr(colon + 1));
        if ((key == "model name" || key == "Model" || key == "Hardware" || key == "cpu") &&
            facts.model == unknown)
            facts.model = value;
        else if (key == "flags" && !facts.hypervisor)
            facts.hypervisor = (" " + value + " ").find(" hypervisor ") != std::string::npos;
        else if (key == "cpu MHz") {
            std::istringstream number(value);
            number.imbue(std::locale::classic());
            if (double mhz = 0; number >> mhz)
                facts.mhz.push_back(mhz);
        }
    }
    return facts;
}

// "0-1,4": the processors this process may run on.
std::string affinity_list() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return unknown;
    std::string list;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &set))
            continue;
        int last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
            ++last;
        if (!list.empty())
            list += ',';
        list += last > cpu ? fmt::format("{}-{}", cpu, last) : fmt::format("{}", cpu);
        cpu = last;
    }
    return list;
}

std::string governor() {
    std::vector<std::string> found;
    std::error_code error;
    for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); ++cpu) {
        const auto value =
            first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/scaling_governor");
        if (!value.empty() && std::find(found.begin(), found.end(), value) == found.end())
            found.push_back(value);
    }
    if (found.empty())
        return std::filesystem::exists("/sys/devices/system/cpu/cpu0/cpufreq", error)
                   ? "unknown: scaling_governor cannot be read"
                   : "unknown: the kernel offers no cpufreq folder here (usual in a virtual machine)";
    return fmt::format("{}", fmt::join(found, ", "));
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    if (!gmtime_r(&now, &parts))
        return unknown;
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                       parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

json resolution_ns(clockid_t clock) {
    timespec value{};
    if (clock_getres(clock, &value) != 0)
        return unknown;
    return static_cast<std::int64_t>(value.tv_sec) * 1'000'000'000 + value.tv_nsec;
}

load_snapshot read_load() {
    load_snapshot load;
    auto averages = open_plain("/proc/loadavg");
    auto stat = open_plain("/proc/stat");
    std::string name;
    std::uint64_t nice = 0;
    std::uint64_t irq = 0;
    std::uint64_t softirq = 0;
    load.known = static_cast<bool>(averages >> load.load1 >> load.load5 >> load.load15) &&
                 static_cast<bool>(stat >> name >> load.user >> nice >> load.system >> load.idle >>
                                   load.iowait >> irq >> softirq >> load.steal);
    load.user += nice;
    load.system += irq + softirq;
    return load;
}

json to_json(const load_snapshot& load) {
    if (!load.known)
        return unknown;
    return {{"load1", load.load1},
            {"load5", load.load5},
            {"load15", load.load15},
            {"jiffies",
             {{"user", load.user},
              {"system", load.system},
              {"idle", load.idle},
              {"iowait", load.iowait},
              {"steal", load.steal}}}};
}

// Shares of the time of all processors between two snapshots; null when no jiffy passed.
json shares(const load_snapshot& before, const load_snapshot& after) {
    if (!before.known || !after.known)
        return nullptr;
    const auto passed = [](std::uint64_t from, std::uint64_t to) {
        return to > from ? static_cast<double>(to - from) : 0.0;
    };
    const double user = passed(before.user, after.user);
    const double system = passed(before.system, after.system);
    const double idle = passed(before.idle, after.idle);
    const double iowait = passed(before.iowait, after.iowait);
    const double steal = passed(before.steal, after.steal);
    const double all = user + system + idle + iowait + steal;
    if (!(all > 0))
        return nullptr;
    return {{"user", user / all},
            {"system", system / all},
            {"idle", idle / all},
            {"iowait", iowait / all},
            {"steal", steal / all}};
}

std::string revision_text() {
    return std::string(build_facts::git_revision) +
           (build_facts::git_dirty ? " with uncommitted changes" : "");
}

json library_versions() {
    json versions = json::object();
#if defined(BOOST_LIB_VERSION)
    std::string boost = BOOST_LIB_VERSION;
    std::replace(boost.begin(), boost.end(), '_', '.');
    versions["boost"] = boost;
#else
    versions["boost"] = unknown;
#endif
#if defined(EVENT__VERSION)
    versions["libevent"] = EVENT__VERSION;
#else
    versions["libevent"] = unknown;
#endif
    versions["fmt"] =
        fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
    versions["cli11"] = CLI11_VERSION;
    versions["nlohmann_json"] = fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                            NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH);
    versions["benchmark"] = *build_facts::benchmark_version ? build_facts::benchmark_version : unknown;
#if defined(_GLIBCXX_RELEASE)
    versions["libstdcxx"] = fmt::format("{} ({})", _GLIBCXX_RELEASE, __GLIBCXX__);
#endif
    return versions;
}

std::string or_none(const std::string& text, const char* none) {
    return text.empty() ? none : text;
}

} // namespace

std::string sanitizer_name() {
#if defined(__SANITIZE_ADDRESS__)
    return "address";
#elif defined(__SANITIZE_THREAD__)
    return "thread";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return "address";
#elif __has_feature(thread_sanitizer)
    return "thread";
#else
    return {};
#endif
#else
    return {};
#endif
}

bool optimised_build() {
#if defined(__OPTIMIZE__) && defined(NDEBUG)
    return true;
#else
    return false;
#endif
}

std::string version_line() {
    return fmt::format("timerbench {}, revision {}", build_facts::project_version, revision_text());
}

unsigned usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return static_cast<unsigned>(CPU_COUNT(&set));
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? static_cast<unsigned>(online) : 1;
}

environment environment::capture() {
    environment result;
    result.cpus_ = usable_cpus();
    const cpu_facts cpu = read_cpuinfo();
    utsname system{};
    const bool named = uname(&system) == 0;
    const int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    const std::string clock_source =
        first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");

    json& facts = result.facts_;
    facts["started_utc"] = utc_now();
    facts["cpu"] = {{"model", cpu.model},     {"online", sysconf(_SC_NPROCESSORS_ONLN)},
                    {"usable", result.cpus_}, {"affinity", affinity_list()},
                    {"mhz", cpu.mhz},         {"virtual_machine", cpu.hypervisor},
                    {"governor", governor()}};
    facts["clock"] = {{"source", or_none(clock_source, unknown)},
                      {"monotonic_resolution_ns", resolution_ns(CLOCK_MONOTONIC)},
                      {"coarse_resolution_ns", resolution_ns(CLOCK_MONOTONIC_COARSE)},
                      {"timer_slack_ns", slack >= 0 ? json(slack) : json(unknown)}};
    facts["kernel"] =
        named ? fmt::format("{} {} {}", system.sysname, system.release, system.version) : unknown;
    facts["machine"] = named ? system.machine : unknown;
    facts["libc"] = std::string("glibc ") + gnu_get_libc_version();
    facts["compiler"] = build_facts::compiler;
    facts["flags"] = or_none(build_facts::flags, "none");
    facts["build_type"] = or_none(build_facts::build_type, "none");
    facts["optimised"] = optimised_build();
#if defined(NDEBUG)
    facts["ndebug"] = true;
#else
    facts["ndebug"] = false;
#endif
    facts["sanitizer"] = or_none(sanitizer_name(), "none");
    facts["libraries"] = library_versions();
    facts["version"] = build_facts::project_version;
    facts["git"] = {{"revision", build_facts::git_revision}, {"dirty", build_facts::git_dirty}};
    result.before_ = read_load();
    return result;
}

void environment::capture_after() {
    after_ = read_load();
}

json environment::to_json() const {
    json all = facts_;
    all["load"] = {{"before", harness::to_json(before_)},
                   {"after", after_.known ? harness::to_json(after_) : json(nullptr)},
                   {"between", shares(before_, after_)}};
    return all;
}

std::vector<std::string> environment::header_lines() const {
    const auto text_of = [](const json& value) {
        return value.is_string() ? value.get<std::string>() : write_strict(value);
    };
    const json& cpu = facts_.at("cpu");
    const json& clock = facts_.at("clock");
    std::vector<std::string> libraries;
    for (const auto& [name, version] : facts_.at("libraries").items())
        libraries.push_back(name + ' ' + text_of(version));
    return {
        "started    " + text_of(facts_.at("started_utc")),
        "cpu        " + text_of(cpu.at("model")) + ", " + text_of(cpu.at("online")) + " online, usable " +
            text_of(cpu.at("affinity")) + (cpu.at("virtual_machine") == true ? ", virtual machine" : ""),
        "governor   " + text_of(cpu.at("governor")),
        "clock      source " + text_of(clock.at("source")) + ", coarse clock " +
            text_of(clock.at("coarse_resolution_ns")) + " ns, timer slack " +
            text_of(clock.at("timer_slack_ns")) + " ns",
        "kernel     " + text_of(facts_.at("kernel")) + ", " + text_of(facts_.at("libc")),
        "build      " + text_of(facts_.at("compiler")) + ", " + text_of(facts_.at("build_type")) + ": " +
            text_of(facts_.at("flags")),
        "sanitizer  " + text_of(facts_.at("sanitizer")),
        fmt::format("libraries  {}", fmt::join(libraries, ", ")),
        "revision   " + revision_text(),
    };
}

std::vector<std::string> environment::load_lines() const {
    if (!before_.known)
        return {"load: unknown, /proc/loadavg or /proc/stat cannot be read"};
    std::vector<std::string> lines;
    std::string line = "load average before " + format_number(before_.load1, 2);
    if (after_.known)
        line += ", after " + format_number(after_.load1, 2);
    const json between = shares(before_, after_);
    if (between.is_object())
        line += "; meanwhile user " + format_number(100 * between.at("user").get<double>(), 1) +
                " %, system " + format_number(100 * between.at("system").get<double>(), 1) + " %, idle " +
                format_number(100 * between.at("idle").get<double>(), 1) + " %, steal " +
                format_number(100 * between.at("steal").get<double>(), 1) + " %";
    lines.push_back(line);
    if (before_.load1 >= busy_load_per_cpu * cpus_)
        lines.push_back(
            "WARNING: the machine was busy before the run began; absolute figures are not to be trusted");
    return lines;
}

std::vector<std::string> environment::marks() const {
    std::vector<std::string> marks;
    if (!optimised_build())
        marks.emplace_back("DEBUG BUILD");
    if (sanitizer_name() == "address")
        marks.emplace_back("ADDRESS SANITIZER");
    if (sanitizer_name() == "thread")
        marks.emplace_back("THREAD SANITIZER");
    return marks;
}

} // namespace timerbench::harness
