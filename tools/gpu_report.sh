#!/bin/sh
# Everything that a machine with a GPU can say about the CUDA backend, in one report.
#
#     tools/gpu_report.sh [FILE]        default build/gpu_report.txt; also on stdout
#
# Runs what is built: build/tests/gpu/conform_test, build/bench/frontier/frontier, build/shoal. What
# is missing, or was stopped by its limit, is said in the report. Exit code 1 when a part failed.
set -u
report=${1:-build/gpu_report.txt}
build=${BUILD:-build}
status=0
missing=

say() { printf '%s\n' "$*" | tee -a "$report"; }

# part NAME SECONDS COMMAND...: its output, then how it ended
part() {
    name=$1 limit=$2
    shift 2
    say "== $name: $*"
    if ! command -v "$1" >/dev/null 2>&1; then
        say "not run: no $1"
        missing="$missing $name,"
        return
    fi
    timeout "$limit" "$@" >"$report.part" 2>&1
    rc=$?
    tee -a "$report" <"$report.part"
    [ "$rc" = 0 ] && return
    [ "$rc" = 124 ] && say "stopped after $limit s" || say "failed: exit $rc"
    status=1
}

: >"$report" || exit 1
frontier=$build/bench/frontier/frontier
say "shoal CUDA report, $(date -u +%Y-%m-%dT%H:%MZ), $(git rev-parse --short HEAD 2>/dev/null)"
part device 20 nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap --format=csv
part version 20 "$build/shoal" version
part conform 300 "$build/tests/gpu/conform_test"
for run in "8b Q4_K_M 1,8,32,128 512" "8b Q8_0 1,8 512" "8b BF16 1,8 512" "8b Q4_K_M 1,8 32768" \
    "30b-a3b Q4_K 1,8 512" "20b-oss MXFP4 1,8 512"; do
    # shellcheck disable=SC2086 # four words
    set -- $run
    part "decode $1 $2" 120 "$frontier" -backend cuda -shape "$1" -type "$2" -batch "$3" \
        -context "$4" -steps 40
done
part prefill 120 "$frontier" -backend cuda -shape 8b -type Q4_K_M -batch 1 -steps 8 -prefill 4096
part memcheck 200 compute-sanitizer --tool memcheck --error-exitcode 3 "$frontier" -backend cuda \
    -shape 2b -batch 1,40 -steps 2 -prefill 300
metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
part profile 200 ncu --metrics $metrics --csv \
    -s 300 -c 40 "$frontier" -backend cuda -shape 8b -type Q4_K_M -batch 1 -steps 8
rm -f "$report.part"
[ -z "$missing" ] || say "== not run:${missing%,}"
[ "$status" = 0 ] && say "== what ran passed" || say "== parts failed, see above"
exit "$status"
