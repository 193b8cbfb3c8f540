#!/bin/sh
# Runs one test program for cargo, which hands it over with the arguments of that program; but not where
# it is of another lane of suite.sh.
#
# Tests on nodes wait most of the time, and so do those of whole agents and of the API server: more of them
# run at once than there are processors. Those of pressure measure how fast the agent is: not as many.
case ${WINDDOWN_LANE:-all},${CARGO_PKG_NAME:-} in
all,* | nodes,winddown-node-tests) ;;
nodes,* | machine,winddown-node-tests) exit 0 ;;
esac
case ${CARGO_PKG_NAME:-} in
winddown-node-tests)
    case $1 in
    */pressure-*) threads=3 ;;
    */deps/*) threads=6 ;;
    esac
    ;;
winddown | winddown-cluster)
    case $1 in
    */deps/all-* | */deps/services-*) threads=6 ;;
    esac
    ;;
esac
[ -z "${threads:-}" ] || exec "$@" --test-threads="$threads"
exec "$@"
