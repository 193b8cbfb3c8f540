#!/bin/sh
# How long a form of the tests takes, and how much disk: said before, measured after.
#
#   tests/node/took.sh say|keep test|test-all
#
# `say` speaks of this machine's last run, which `keep` has written down outside git, or where there is none
# yet, of the one in tests/node/took, a copy of ~/.cache/winddown/took. A run that has to compile all crates is another
# thing than one that has only a few, and so each has a line of its own.
set -eu
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/winddown
target=${CARGO_TARGET_DIR:-target}
form=$2
begun=$target/begun-$form

gigabytes() { du -sm "$@" 2>/dev/null | awk '{ sum += $1 } END { printf "%.1f", sum / 1024 }'; }

case $1 in
say)
    kind=again
    # Only a run of the tests writes this; what else is compiled there is a part of them.
    [ -e "$target/test.log" ] || kind=first
    mkdir -p "$target"
    echo "$kind $(date +%s)" >"$begun"
    last() { cat "$cache/took" tests/node/took 2>/dev/null | grep "^$form $1" | head -n 1; }
    line=$(last "$kind ") || line=
    [ -n "$line" ] || line=$(last '') || line=
    if [ -z "$line" ]; then
        echo "It has not been measured how long this takes."
    else
        set -- $line
        [ "$2" = "$kind" ] || [ "$kind" = again ] || echo "This run compiles everything first."
        how='by a first run'
        [ "$2" = first ] || how='with all crates compiled'
        echo "Took $3 minutes on $4 processors when last measured, $how; $5 GB in $target, $6 GB in $cache."
    fi
    [ "$(id -u)" = 0 ] || echo "Without root, what needs nodes is skipped."
    ;;
keep)
    read -r kind since <"$begun"
    minutes=$((($(date +%s) - since + 59) / 60))
    mkdir -p "$cache"
    {
        echo "$form $kind $minutes $(nproc) $(gigabytes "$target") $(gigabytes "$cache")"
        grep -v "^$form $kind " "$cache/took" 2>/dev/null || :
    } >"$cache/took.new"
    mv "$cache/took.new" "$cache/took"
    ;;
esac
