#!/bin/sh
# Runs the stages of `make test-all` one after the other, and ends with one line for each, and with what the tests
# said last. A stage that fails does not stop the next ones, because each takes long enough to be worth its result.
#
#   tests/node/stages.sh
set -u
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-target}
make="${MAKE:-make} --no-print-directory"
results=$(mktemp)
trap 'rm -f "$results" "$results".*' EXIT
# A shell lets what runs behind it not be interrupted.
trap 'trap - TERM; kill 0' INT TERM

# stage NAME COMMAND...
stage() {
    name=$1
    shift
    begun=$(date +%s)
    echo "== $name"
    { "$@" || echo failed >"$results.$name.failed"; } | tee "$results.$name.said"
    result=passed
    ! grep -q '^SKIPPED: ' "$results.$name.said" || result=skipped
    [ ! -e "$results.$name.failed" ] || result=FAILED
    printf '%-9s %-7s %3d minutes\n' "$name" "$result" $((($(date +%s) - begun + 30) / 60)) >>"$results"
}

# All that runs on nodes runs the programs of which the packages are made.
WINDDOWN_PROGRAMS=$(tests/node/programs.sh release) || exit
export WINDDOWN_PROGRAMS

tool() { $cargo run --quiet --package winddown-node-tests --bin "$@"; }

# What uses all processors does not run beside the tests.
stage crates $make crates
stage packages $make packages PROFILE=release TRIAL=1
stage tests env WINDDOWN_LONG=1 tests/node/suite.sh
stage chaos tool chaos -- 100
stage restarts tool restarts -- 60
stage reboots tool chaos -- 10 --in-a-row
stage soak tool soak -- 0.2
# An agent that is left alone computes nothing that fuzzing could take from it.
stage calm $make pressure KIND=calm PROFILE=release &
stage fuzz nice -n 19 tests/fuzz/run.sh 60
wait
echo
cat "$results" "$target/test.counts" 2>/dev/null
# All stages have run, whatever became of them.
tests/node/took.sh keep test-all
! grep -q FAILED "$results"
