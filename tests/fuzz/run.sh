#!/bin/sh
# Holds the targets against input that is guided by the code it reaches, and prints a table.
#
#   tests/fuzz/run.sh [seconds for each target, 600] [target...]
#
# Works with a stable compiler: the coverage is LLVM's own, and no sanitizer is needed where there is no
# unsafe code. The checks of a debug build are on. What is learned is kept outside git; a finding is an
# input in target/fuzz, with what was said beside it, and the exit code is 1. Put into tests/fuzz/corpus it
# is a test from then on.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-600}
[ $# -eq 0 ] || shift
target_dir=${CARGO_TARGET_DIR:-target}
learned=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/fuzz
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/instrumented.sh ${CARGO:-cargo} build --quiet \
    --package winddown-fuzz --features guided --example guided
program=$target_dir/debug/examples/guided
found=$target_dir/fuzz
mkdir -p "$found"
[ $# -gt 0 ] || set -- $(ls tests/fuzz/corpus)
table_row='
    / cov: / {
        for (i = 1; i < NF; i++) {
            if ($i == "cov:") edges = $(i + 1)
            if ($i == "corp:") { split($(i + 1), part, "/"); corpus = part[1] }
        }
    }
    /^stat::number_of_executed_units/ { inputs = $2 }
    /^stat::average_exec_per_sec/ { speed = $2 }
    /^stat::peak_rss_mb/ { memory = $2 }
    END {
        printf "%-18s %10d %8d %8d %8d %6d  %s\n", target, inputs, speed, edges, corpus, memory, said
    }
'
export seconds learned program found table_row
printf '%-18s %10s %8s %8s %8s %6s  %s\n' target inputs /s edges corpus MiB found
# One target for each processor: none of them can use two.
# shellcheck disable=SC2016 # The variables are those of the shell that is run.
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" sh -uc '
    target=$0 log=$found/$0.log code=0
    mkdir -p "$learned/$target"
    WINDDOWN_FUZZ=$target "$program" "$learned/$target" "tests/fuzz/corpus/$target" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
        -print_final_stats=1 -artifact_prefix="$found/$target-" >"$log" 2>&1 || code=1
    said=nothing
    [ "$code" = 0 ] || said="see $log"
    awk -v target="$target" -v said="$said" "$table_row" "$log"
    [ "$code" != 0 ] || rm "$log"
    exit "$code"
' || exit 1
