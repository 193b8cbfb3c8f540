#!/bin/sh
# Notes how cargo would run one program of tests, as a script in the directory WINDDOWN_JOBS, for suite.sh.
#
# Those that wait most of the time begin first, beside each other and beside those that compute, and run more
# tests at once than there are processors. Of those of pressure, which measure how fast the agent is, not as
# many. The numbers are the order.
set -eu
case $CARGO_PKG_NAME:${1##*/} in
winddown-node-tests:all-*) order=00 threads=6 ;;
winddown-runtimes-tests:suite-*) order=01 threads=4 ;;
winddown-node-tests:pressure-*) order=02 threads=3 ;;
winddown-runtimes:process-*) order=04 threads=4 ;;
winddown-cluster-tests:all-*) order=05 threads=6 ;;
winddown:all-*) order=06 threads=4 ;;
winddown-node-tests:chaos-*) order=07 threads= ;;
winddown:services-*) order=08 threads=4 ;;
winddown-render:browser-* | winddown-node:winddown_node-* | winddown-notices:winddown_notices-*) order=09 threads= ;;
*) order=50 threads= ;;
esac
# On two processors what is tested needs time to act, too.
[ -z "$threads" ] || [ "$(nproc)" -gt 2 ] || threads=$(((threads * 3 + 3) / 4))
# Emulated machines compute all the time.
case ${WINDDOWN_LONG:+long}:$order in long:0[01]) threads=3 ;; esac
# What only computes leaves the processors to what measures time on nodes.
case $order in 50) nice=10 ;; *) nice=0 ;; esac
job=$WINDDOWN_JOBS/$order-$CARGO_PKG_NAME-${1##*/}
{
    export -p
    printf 'cd "$PWD"\nexec nice -n %s' "$nice"
    for argument in "$@" ${threads:+"--test-threads=$threads"}; do
        printf " '%s'" "$(printf %s "$argument" | sed "s/'/'\\\\''/g")"
    done
    echo
} >"$job.sh"
