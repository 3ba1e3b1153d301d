# Functions shared by the scripts of this folder. Sourced, never run: a script sources it right after
# `set -euo pipefail`, then calls `lib_init NAME`.
# shellcheck shell=bash

# A shell started with an empty environment has a PATH of its own but does not pass it on.
export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck disable=SC2034 # the scripts read it
caller_dir=$PWD

# What Debian 12 calls the things this project needs. Boost stands apart: see missing_packages.
required_packages=(g++ cmake ninja-build pkg-config git libbenchmark-dev libevent-dev libfmt-dev libcli11-dev
    nlohmann-json3-dev libgtest-dev python3 python3-jsonschema python3-numpy python3-scipy)

# What scripts/notebook needs, and nothing else does.
# shellcheck disable=SC2034 # the scripts read it
notebook_packages=(python3 python3-pandas python3-matplotlib python3-ipykernel jupyter-nbconvert)

# What the instruction counts and the comparison of builds use, and nothing else does.
# shellcheck disable=SC2034 # the scripts read it
gate_packages=(valgrind lld)

# The order of the experiments: short ones and those that show what a machine can do first. Others follow by name.
experiment_order=(ready_path arm_cancel allocs exact scaling accuracy fire memory idle tail herd workload lost_wakeup)

# The presets of CMakePresets.json, in the order in which they are tested.
# shellcheck disable=SC2034 # the scripts read it
all_presets=(release asan tsan)

me=timerbench
child_pid=
child_address=
# Put before cmake and ctest where test binaries need another start, see thread_sanitizer_prefix in scripts/test.
prefix=()

lib_init() {
    me=$1
    trap 'on_signal INT 130' INT
    trap 'on_signal TERM 143' TERM
}

say() { printf '%s: %s\n' "$me" "$*"; }
warn() { printf '%s: %s\n' "$me" "$*" >&2; }

# die CODE MESSAGE: one line on standard error.
die() {
    local code=$1
    shift
    warn "$*"
    exit "$code"
}

# Passes the signal on, waits up to ten seconds for the child to end in order, kills what is left of it, and leaves.
on_signal() {
    local signal=$1 code=$2 tries=0
    trap '' INT TERM
    if [[ -n $child_pid ]]; then
        kill -s "$signal" -- "$child_address" 2>/dev/null || true
        while kill -0 -- "-$child_pid" 2>/dev/null && ((tries < 100)); do
            sleep 0.1
            tries=$((tries + 1))
        done
        kill -s KILL -- "-$child_pid" 2>/dev/null || true
    fi
    warn "interrupted; reports that were complete stay as they are"
    exit "$code"
}

# run_child COMMAND...: runs it in a process group of its own, so that a signal sent to this script alone reaches all
# of it too. Returns its exit code. Reads nothing from the terminal.
run_child() {
    local code=0
    set -m
    "$@" </dev/null &
    child_pid=$!
    child_address=-$child_pid
    set +m
    wait "$child_pid" || code=$?
    child_pid=
    return "$code"
}

# run_bench SECONDS BINARY ARGUMENT...: the same with a limit of time; 124 when it is exceeded. A bench binary ends in
# order at the first signal and at once at the second, so a signal goes to `timeout` alone, which hands it on once.
run_bench() {
    local code=0
    set -m
    timeout --foreground -k 10 "$@" </dev/null &
    child_pid=$!
    child_address=$child_pid
    set +m
    wait "$child_pid" || code=$?
    child_pid=
    return "$code"
}

# elapsed SECONDS -> "12 s" or "3 min 04 s"
elapsed() {
    if (($1 < 60)); then
        printf '%d s' "$1"
    else
        printf '%d min %02d s' "$(($1 / 60))" "$(($1 % 60))"
    fi
}

# option_value OPTION COUNT: dies unless the option still has a value behind it.
option_value() {
    (($2 >= 2)) || die 2 "$1 needs a value; see $me --help"
}

# valid_jobs VALUE: prints it in decimal, or dies.
valid_jobs() {
    if ! [[ $1 =~ ^[0-9]{1,4}$ ]] || ((10#$1 < 1 || 10#$1 > 1024)); then
        die 2 "--jobs '$1' is not a number from 1 to 1024"
    fi
    printf '%d' "$((10#$1))"
}

# One job per core, and no more than memory allows at 2 GB each: the largest files need nearly that much.
default_jobs() {
    local cores memory
    cores=$(nproc 2>/dev/null || echo 1)
    memory=$(awk '/^MemAvailable:/ { print int($2 / 2097152 + 0.5) }' /proc/meminfo 2>/dev/null || true)
    if [[ $memory =~ ^[0-9]+$ ]] && ((memory < cores)); then
        cores=$((memory > 1 ? memory : 1))
    fi
    printf '%d' "$cores"
}

# --- packages ---

# The package of the Boost headers that is installed, or nothing. Their -dev packages exclude each other, so
# whichever is there is used.
installed_boost() {
    # shellcheck disable=SC2016 # dpkg-query fills in the fields
    dpkg-query -W -f='${Package} ${db:Status-Status}\n' 'libboost*-dev' 2>/dev/null |
        awk '$1 ~ /^libboost1\.[0-9]+-dev$/ && $2 == "installed" { print $1; exit }' || true
}

# not_installed PACKAGE...: prints those that are not installed, one a line. Without dpkg-query nothing is known to be there.
not_installed() {
    local package status
    for package in "$@"; do
        # shellcheck disable=SC2016 # dpkg-query fills in the fields
        status=$(dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null || true)
        grep -qx installed <<<"$status" || printf '%s\n' "$package"
    done
}

# Prints what is not installed of what building and measuring need.
missing_packages() {
    not_installed "${required_packages[@]}"
    [[ -n $(installed_boost) ]] || echo libboost-dev
}

# --- building ---

# configure PRESET: starts afresh when the cache belongs to another folder or to another compiler than CXX asks for,
# because CMake would refuse the first and ignore the second.
configure() {
    local preset=$1 cache=$root/build/$1/CMakeCache.txt fresh=() home compiler
    if [[ -f $cache ]]; then
        home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")
        compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$cache")
        if [[ $home != "$root" ]] ||
            [[ -n ${CXX:-} && $(command -v -- "$CXX" || true) != "$compiler" ]]; then
            fresh=(--fresh)
        fi
    fi
    (CDPATH='' cd -- "$root" && exec "${prefix[@]}" cmake --preset "$preset" "${fresh[@]}")
}

# build PRESET JOBS [TARGET...]
build() {
    local preset=$1 jobs=$2
    shift 2
    (($# == 0)) || set -- --target "$@"
    (CDPATH='' cd -- "$root" && exec "${prefix[@]}" cmake --build --preset "$preset" --parallel "$jobs" "$@")
}

# run_tests PRESET JOBS JUNIT: results go to the file JUNIT as well. Ten minutes bound a test that sets no limit itself.
run_tests() {
    (CDPATH='' cd -- "$root" &&
        exec "${prefix[@]}" ctest --preset "$1" --parallel "$2" --timeout 600 --output-junit "$3")
}

# --- experiments ---

# list_experiments BIN: the names behind BIN/bench_*, in the order in which they are run.
list_experiments() {
    local bin=$1 name path known=" ${experiment_order[*]} "
    for name in "${experiment_order[@]}"; do
        [[ -f $bin/bench_$name && -x $bin/bench_$name ]] && printf '%s\n' "$name"
    done
    for path in "$bin"/bench_*; do
        name=${path##*/bench_}
        [[ -f $path && -x $path && $known != *" $name "* ]] && printf '%s\n' "$name"
    done
    return 0
}

# severity CODE: how bad an exit code is. 0 fine, 3 cannot decide, 1 a check failed, 2 unusable input, all else a crash.
severity() {
    case $1 in
    0) echo 0 ;;
    3) echo 1 ;;
    1) echo 2 ;;
    2) echo 3 ;;
    *) echo 4 ;;
    esac
}

# worse A B: prints the worse of two exit codes.
worse() {
    if (($(severity "$2") > $(severity "$1"))); then echo "$2"; else echo "$1"; fi
}

# what_happened CODE LIMIT: an exit code in words.
what_happened() {
    case $1 in
    0) echo "ok" ;;
    1) echo "a check failed" ;;
    2) echo "unusable input or output" ;;
    3) echo "cannot decide" ;;
    124) echo "killed, it ran for more than $(elapsed "$2")" ;;
    137) echo "killed: out of memory, or it ignored the end of its $(elapsed "$2")" ;;
    *) if (($1 > 128)); then echo "died of signal $(($1 - 128))"; else echo "exit code $1"; fi ;;
    esac
}

# writable_folder DIR: makes it, or says in one line why that cannot be and leaves with 2.
writable_folder() {
    local dir=$1 probe
    if [[ -e $dir && ! -d $dir ]]; then
        die 2 "--out '$dir' is not a folder; give a folder that can be written or made"
    fi
    mkdir -p -- "$dir" 2>/dev/null || die 2 "--out '$dir' cannot be made; give a folder that can be written or made"
    probe=$dir/.writable.$$
    { : >"$probe"; } 2>/dev/null || die 2 "--out '$dir' cannot be written; give a folder that can be written or made"
    rm -f -- "$probe"
}

# Python with jsonschema where there is a choice: the one Debian's package belongs to, not one a version manager put first.
find_python() {
    local candidate
    for candidate in /usr/bin/python3 python3; do
        if command -v -- "$candidate" >/dev/null && "$candidate" -c 'import jsonschema' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    command -v python3 || die 2 "python3 is not there; scripts/setup installs it"
}
