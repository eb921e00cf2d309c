#!/bin/sh
# Everything that a machine with a GPU can say about the CUDA backend, in one report.
#
#     tools/gpu_report.sh [FILE [MODEL]]        default build/gpu_report.txt; also on stdout
#
# Runs what is built: build/tests/gpu/conform_test, tiny_gpu_test (over build/tiny),
# build/bench/frontier/frontier, build/shoal; with MODEL (a GGUF, bench/frontier/make_gguf.py writes
# one) also its plan and its first token. What is missing, or was stopped by its limit, is said.
# Exit code 1 when a part failed. About four minutes on an H200.
set -u
report=${1:-build/gpu_report.txt}
model=${2:-}
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
    began=$(date +%s.%N)
    timeout "$limit" "$@" >"$report.part" 2>&1
    rc=$?
    took=$(echo "$began $(date +%s.%N)" | awk '{printf "%.2f", $2 - $1}')
    tee -a "$report" <"$report.part"
    say "   $took s"
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
part "tiny models" 200 "$build/tests/gpu/tiny_gpu_test"
for run in "8b Q4_K_M 1,8,32,64,128 512" "8b Q4_K_M 8,32,128,256 2048" "8b Q8_0 1,8,32 512" \
    "8b BF16 1,8,32,128 512" "8b Q4_K_M 1,8 32768" "30b-a3b Q4_K 1,8,32 512" \
    "20b-oss MXFP4 1,8 512"; do
    # shellcheck disable=SC2086 # four words
    set -- $run
    part "decode $1 $2" 60 "$frontier" -backend cuda -shape "$1" -type "$2" -batch "$3" \
        -context "$4" -steps 30
done
part "decode 8b, int8 pages" 60 "$frontier" -backend cuda -shape 8b -type Q4_K_M -kv int8 \
    -batch 1,8 -context 32768 -steps 30
for type in Q4_K_M Q8_0 BF16; do
    part "prefill 8b $type" 60 "$frontier" -backend cuda -shape 8b -type "$type" -batch 1 \
        -steps 8 -prefill 4096
done
if [ -n "$model" ]; then
    part plan 20 "$build/shoal" plan -ctx 8192 "$model"
    part "plan, 8 layers" 20 "$build/shoal" plan -ctx 8192 -ngl 8 "$model"
    part "first token" 60 "$build/shoal" run -local -n 1 -temp 0 -timings -ctx 8192 "$model" hello
else
    missing="$missing plan, first token (no MODEL),"
fi
for type in Q4_K_M BF16; do
    part "memcheck $type" 200 compute-sanitizer --tool memcheck --error-exitcode 3 "$frontier" \
        -backend cuda -shape 2b -type "$type" -batch 1,16,40 -steps 2 -prefill 300
done
metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
part profile 100 ncu --clock-control none --metrics $metrics --csv \
    -k 'regex:^(one|wide|chain|attend|attn|ops|gemm|matmul)' -s 700 -c 24 \
    "$frontier" -backend cuda -shape 8b -type Q4_K_M -batch 1 -steps 8
rm -f "$report.part"
[ -z "$missing" ] || say "== not run:${missing%,}"
[ "$status" = 0 ] && say "== what ran passed" || say "== parts failed, see above"
exit "$status"
