#!/bin/sh
# Runs every test of the workspace and ends with one line: "N passed, N failed, N skipped".
#
#   tests/node/suite.sh [arguments for cargo test]
#
# Without arguments, tests on nodes run beside all others; the lines of each say which they are of.
#
# A test that cannot run prints "SKIPPED: name: why" and passes; here it is counted as skipped, and
# listed. With WINDDOWN_NO_SKIP set such a test fails instead, unless no package registry has what it
# lacks. A test of the long form prints "LEFT: name: why" where WINDDOWN_LONG is not set, and is counted
# in a line of its own. The whole output is kept in target/test.log. The exit code is that of the tests.
set -u
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
log=$target/test.log
mkdir -p "$target"
export CARGO_TERM_COLOR=never
begun=$(date +%s)

echo "The first time: a quarter of an hour on two processors, 9 GB in $target, 2 GB in the cache for the"
echo "Debian roots of nodes. Afterwards: some eight minutes. Without root, what needs nodes is skipped."

# The roots come from a mirror while cargo compiles. A test that needs one waits for it, and says what is
# the matter where it cannot be made.
[ "$(id -u)" != 0 ] || make --no-print-directory node-base >/dev/null &

# The programs that tests on nodes run are those that ship: the tests' own build of them has more
# features. They are built once, before the first test is timed, and not while one runs. Without symbols,
# because every node gets a copy. A new file each time: a node may still have the last one.
cargo build --package winddown --bins || exit
mkdir -p "$target/shipped"
for program in winddown winddownd winddown-shim; do
    rm -f "$target/shipped/$program"
    strip -o "$target/shipped/$program" "$target/debug/$program" || exit
done
WINDDOWN_PROGRAMS=$(realpath "$target/shipped")
export WINDDOWN_PROGRAMS
# As a list, because a path may hold blanks.
runner="target.'cfg(all())'.runner = ['$PWD/tests/node/runner.sh']"

# lane NAME [arguments for cargo test]: runs the programs of tests that runner.sh takes for a lane of that
# name, and keeps their output in a log and the exit code in a file beside it.
#
# --show-output, because a passing test's SKIPPED line is otherwise kept from us. What else passing tests
# print stays in the log. A program of another lane has nothing to show.
lane() {
    WINDDOWN_LANE=$1
    export WINDDOWN_LANE
    shift
    {
        cargo test --config "$runner" --workspace --no-fail-fast "$@" -- --show-output 2>&1
        echo $? >"$lanes/$WINDDOWN_LANE.status"
    } | tee "$lanes/$WINDDOWN_LANE.log" | awk -v lane="$WINDDOWN_LANE" '
        /^successes:$/ { quiet = 1 }
        /^(failures:|test result:)/ || /^ +(Running|Doc-tests) / { quiet = 0 }
        /^ +(Running|Doc-tests) / { program = $0; next }
        quiet || !NF { next }
        program != "" { print lane ": " program; program = "" }
        { print lane ": " $0; fflush() }
    '
}

# Tests on nodes wait most of the time, so the others run beside them.
lanes=$(mktemp -d)
trap 'rm -rf "$lanes"' EXIT
# A shell lets what runs behind it not be interrupted.
trap 'trap - TERM; kill 0' INT TERM
if [ $# = 0 ]; then
    cargo test --config "$runner" --workspace --no-run || exit
    lane nodes --tests &
    lane machine
    wait $!
else
    lane all "$@"
fi
cat "$lanes"/*.log >"$log"
status=$(cat "$lanes"/*.status | sort -n | tail -n 1)

# The summary speaks of tests, so lines that name the same test twice count once.
told=$(grep -oE '(SKIPPED|LEFT): .*' "$log" | sort -u)
awk -v told="$told" -v status="$status" -v took="$(($(date +%s) - begun))" '
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
        }
        list("SKIPPED", "Skipped, because this machine lacks something:")
        list("LEFT", "Left to the long form, make test-all:")
        print ""
        # A skipped test passes as far as cargo knows. One that did not compile has no result.
        if (status != 0 && failed == 0) {
            print "No test failed, yet cargo did: see the error above."
            failed = 1
        }
        printf "%d minutes. ", (took + 30) / 60
        if (count["LEFT"]) printf "Left to make test-all: %d. ", count["LEFT"]
        print "The whole output is in target/test.log."
        printf "%d passed, %d failed, %d skipped\n", \
            passed - count["SKIPPED"] - count["LEFT"], failed, count["SKIPPED"]
    }
' "$log"
exit "$status"
