#!/bin/sh
# Runs every test of the workspace and ends with one line: "N passed, N failed, N skipped".
#
#   tests/node/suite.sh [arguments for cargo test]
#
# A test that cannot run prints "SKIPPED: name: why" and passes; here it is counted as skipped, and
# listed. With WINDDOWN_NO_SKIP set such a test fails instead. The whole output is kept in
# target/test.log. The exit code is that of the tests.
set -u
cd "$(dirname "$0")/../.."
log=${CARGO_TARGET_DIR:-target}/test.log
mkdir -p "$(dirname "$log")"
export CARGO_TERM_COLOR=never

# --show-output, because a passing test's SKIPPED line is otherwise kept from us. What else passing
# tests print stays in the log.
status_file=$(mktemp)
{
    cargo test --workspace --no-fail-fast "$@" -- --show-output 2>&1
    echo $? >"$status_file"
} | tee "$log" | awk '
    /^successes:$/ { quiet = 1 }
    /^(failures:|test result:)/ || /^ +(Running|Doc-tests) / { quiet = 0 }
    !quiet && NF { print; fflush() }
'
status=$(cat "$status_file")
rm -f "$status_file"

# The summary speaks of tests, so lines that name the same test twice count once.
skipped=$(grep -o 'SKIPPED: .*' "$log" | sort -u)
awk -v skipped="$skipped" -v status="$status" '
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
    END {
        n = split(skipped, lines, "\n")
        count = 0
        for (i = 1; i <= n; i++) {
            name = lines[i]
            sub(/^SKIPPED: /, "", name)
            sub(/: .*/, "", name)
            if (!(name in seen)) { seen[name] = 1; count++ }
        }
        print ""
        if (count) {
            print "Skipped, because this machine lacks something:"
            for (i = 1; i <= n; i++) { sub(/^SKIPPED: /, "  ", lines[i]); print lines[i] }
            print ""
        }
        # A skipped test passes as far as cargo knows. One that did not compile has no result.
        if (status != 0 && failed == 0) {
            print "No test failed, yet cargo did: see the error above."
            failed = 1
        }
        printf "%d passed, %d failed, %d skipped\n", passed - count, failed, count
    }
' "$log"
exit "$status"
