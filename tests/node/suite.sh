#!/bin/sh
# Runs every test of the workspace and ends with one line: "N passed, N failed, N skipped (N: why)", which is
# kept in target/test.counts.
#
# A test that cannot run prints "SKIPPED: name: why" and passes; here it is counted as skipped, and
# listed. With WINDDOWN_NO_SKIP set such a test fails instead, unless no package registry has what it
# lacks. A test of the long form prints "LEFT: name: why" where WINDDOWN_LONG is not set, and is counted
# in a line of its own. The whole output is kept in target/test.log. The exit code is that of the tests.
# WINDDOWN_BESIDE names another target of make, which is made while tests run on nodes; if it fails, so does this.
set -u
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
log=$target/test.log
mkdir -p "$target"
rm -f "$target/test.counts"
export CARGO_TERM_COLOR=never
begun=$(date +%s)
# Programs of tests that run at once: most wait most of the time. Emulated machines compute all the time.
at_once=4
[ "$(nproc)" -gt 2 ] || at_once=3
[ -z "${WINDDOWN_LONG:-}" ] || at_once=2
[ -z "${WINDDOWN_BESIDE:-}" ] || at_once=$((at_once + 1))
# Of what properties are tried on, the short form takes the same few cases each time: what gates a change does not
# depend on luck, and the long form looks for what is new.
if [ -z "${WINDDOWN_LONG:-}" ]; then
    export PROPTEST_CASES="${PROPTEST_CASES:-64}" PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-1}"
    export SHUTTLE_RANDOM_SEED="${SHUTTLE_RANDOM_SEED:-1}"
fi

# The roots come from a mirror while cargo compiles. A test that needs one waits for it, and says what is
# the matter where it cannot be made.
[ "$(id -u)" != 0 ] || make --no-print-directory node-base >/dev/null &

# Built once, before the first test is timed, and not while one runs. The long form has them of the profile of the packages
# that it makes.
profile=dev
[ -z "${WINDDOWN_LONG:-}" ] || profile=release
WINDDOWN_PROGRAMS=$(tests/node/programs.sh $profile) || exit
export WINDDOWN_PROGRAMS
# What an embedder's agent does on a node is shown by the example of its README.
cargo build --workspace --example agent || exit
cargo build --quiet --package xtask || exit
WINDDOWN_XTASK=$(realpath "$target/debug/xtask")
export WINDDOWN_XTASK
strip -o "$target/shipped/example-agent.new" "$target/debug/examples/agent" || exit
mv "$target/shipped/example-agent.new" "$target/shipped/example-agent"

# Cargo says how each program is run. --show-output, because a passing test's SKIPPED line is otherwise kept
# from us. The list is one of cargo's own, because a path may hold blanks.
jobs=$(mktemp -d)
trap 'rm -rf "$jobs"' EXIT
# A shell lets what runs behind it not be interrupted.
trap 'trap - TERM; kill 0' INT TERM
runner="target.'cfg(all())'.runner = ['$PWD/tests/node/runner.sh']"

# compile PART [TARGETS]: compiles the programs of tests, only TARGETS if any are given, and notes in the directory
# PART how each is run. It leaves most of the processors to tests that already run; what waits for it is the end.
compile() {
    WINDDOWN_JOBS=$jobs/$1
    shift
    export WINDDOWN_JOBS
    mkdir "$WINDDOWN_JOBS"
    nice -n 10 cargo test --workspace --no-run "$@" || return
    [ $# -gt 0 ] || set -- --tests
    cargo test --config "$runner" --workspace "$@" -- --show-output >/dev/null 2>&1
}

# Names the jobs in the order in which they begin, those on nodes before the rest is compiled.
hand_out() {
    printf '%s\0' "$jobs"/nodes/*.sh
    compile rest >&2 || { : >"$jobs/incomplete"; return; }
    for job in "$jobs"/nodes/*.sh; do rm "$jobs/rest/${job##*/}"; done
    # Examples in the documentation are compiled as they are run.
    echo 'cargo test --workspace --doc --no-fail-fast -- --show-output' >"$jobs/rest/03-doc.sh"
    [ -z "${WINDDOWN_BESIDE:-}" ] || echo "nice -n 10 make $WINDDOWN_BESIDE" >"$jobs/rest/02-$WINDDOWN_BESIDE.sh"
    printf '%s\0' "$jobs"/rest/*.sh
}

# run JOB: keeps its output and its exit code in files beside it, and shows how far it is. What else passing
# tests print stays in the log.
cat >"$jobs/run" <<'RUN'
job=${1%.sh}
begun=$(date +%s)
{
    sh "$1" 2>&1
    status=$?
    # Not in a pipe, whose part has no children.
    times >"$job.times"
    echo "TOOK: $(basename "$job"): $(($(date +%s) - begun)) s, of processors $(tail -n 1 "$job.times")"
    [ "$status" = 0 ] || echo "$(basename "$job") failed: $status"
    echo "$status" >"$job.status"
} | tee "$job.log" | awk -v name="$(basename "$job" | sed 's/^..-winddown-//; s/^..-//; s/-[0-9a-f]*$//')" '
    /^successes:$/ { quiet = 1 }
    /^(failures:|test result:)/ || /^ +Doc-tests / { quiet = 0 }
    quiet || !NF || /^running 0 tests|^test result: ok. 0 passed; 0 failed/ { next }
    { print name ": " $0; fflush() }
'
RUN
# Emulated machines leave the compiler no processor.
[ -z "${WINDDOWN_LONG:-}" ] || cargo test --workspace --no-run || exit
compile nodes --test all --test suite --test pressure || exit
hand_out | xargs -0 -n 1 -P "$at_once" sh "$jobs/run"
if [ -e "$jobs/incomplete" ]; then
    # What tests said since has pushed cargo's errors away.
    cargo test --workspace --no-run
    exit 101
fi
cat "$jobs"/*/*.log >"$log"
times >"$jobs/times"
computed=$(awk -F '[ms ]+' 'END { print int(($1 + $3) + ($2 + $4) / 60 + 0.5) }' "$jobs/times")
status=$(cat "$jobs"/*/*.status | sort -n | tail -n 1)
# The summary speaks of tests, so lines that name the same test twice count once.
told=$(grep -oE '(SKIPPED|LEFT): .*' "$log" | sort -u)
awk -v told="$told" -v status="$status" -v took="$(($(date +%s) - begun))" -v computed="$computed" '
    # "test result: ok. 12 passed; 0 failed; ...". A test may break a line of the runner in two by
    # printing past it, so the result is looked for anywhere in a line.
    match($0, /test result: .*/) {
        rest = substr($0, RSTART)
        split(rest, part, /[.;] */)
        for (i in part) {
            n = part[i] + 0
            if (part[i] ~ / passed$/) passed += n
            if (part[i] ~ / failed$/) failed += n
        }
    }
    # The first and the last lines that each failed test printed: the end of this output then says what is the matter.
    /^(successes|failures):$/ { part_of = $1; named = "" }
    /^---- .* stdout ----$/ && part_of == "failures:" { named = $2; fails[++failures] = named; next }
    /^test result: / { part_of = named = "" }
    # A backtrace has two lines for each of many functions, and here only those of tests would be of use.
    /^stack backtrace:$|^ +[0-9]+: |^ +at |^note: Some details are omitted/ { next }
    named != "" && NF { said[named, ++lines_of[named]] = $0 }
    # What else failed, a test program that ended early or a target of make: its errors and its last lines.
    /^test result: FAILED/ { has_failed_test = 1 }
    / failed: [0-9]+$/ && $1 "" == ended && !has_failed_test {
        fails[++failures] = ended
        for (i = 1; i <= errors; i++) said[ended, ++lines_of[ended]] = error[i]
        for (i = printed - 10; i < printed; i++) if (i >= 0) said[ended, ++lines_of[ended]] = recent[i % 10]
    }
    /^TOOK: / { ended = substr($2, 1, length($2) - 1); next }
    ended != "" { ended = ""; has_failed_test = errors = printed = 0 }
    NF { recent[printed++ % 10] = $0 }
    /(^| )error(\[|:| )|\*\*\*|panicked at/ && errors < 8 { error[++errors] = $0 }
    # Tests of one kind that did not run, those with one reason together.
    function list(kind, title,    i, why, any) {
        for (i = 1; i <= reasons; i++) {
            why = order[i]
            if (kinds[why] != kind) continue
            if (!any++) { print ""; print title }
            print "  " substr(why, length(kind) + 1) ":"
            print names[why]
        }
    }
    END {
        n = split(told, lines, "\n")
        for (i = 1; i <= n; i++) {
            # Names hold "::", never ": ".
            if (split(lines[i], piece, ": ") < 3) continue
            kind = piece[1]; name = piece[2]
            why = kind substr(lines[i], length(kind) + length(name) + 5)
            if ((kind, name) in seen) continue
            seen[kind, name] = 1; count[kind]++
            if (!(why in kinds)) { kinds[why] = kind; order[++reasons] = why }
            names[why] = names[why] (names[why] == "" ? "" : "\n") "    " name
            tests_of[why]++
        }
        list("SKIPPED", "Skipped, because this machine lacks something:")
        list("LEFT", "Left to the long form, make test-all:")
        for (i = 1; i <= failures; i++) {
            name = fails[i]
            print ""
            print "FAILED: " name
            # What is the matter comes first, and what a node said last at the end.
            for (line = 1; line <= lines_of[name]; line++)
                if (line <= 5 || line > lines_of[name] - 20) print "  " said[name, line]
        }
        print ""
        # A skipped test passes as far as cargo knows. One that did not compile has no result.
        if (status != 0 && failed == 0) {
            print "No test failed, yet something else did."
            failed = 1
        }
        printf "%d minutes, %d of processor time. ", (took + 30) / 60, computed
        if (count["LEFT"]) printf "Left to make test-all: %d. ", count["LEFT"]
        print "The whole output is in target/test.log."
        printf "%d passed, %d failed, %d skipped", \
            passed - count["SKIPPED"] - count["LEFT"], failed, count["SKIPPED"]
        for (i = 1; i <= reasons; i++) {
            why = order[i]
            if (kinds[why] != "SKIPPED") continue
            printf "%s%d: %s", (any++ ? "; " : " ("), tests_of[why], substr(why, 8)
        }
        print any ? ")" : ""
    }
' "$log" | tee "$log.said"
tail -n 1 "$log.said" >"$target/test.counts"
rm "$log.said"
exit "$status"
