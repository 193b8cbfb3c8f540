#!/bin/sh
# Builds the .deb of an earlier commit with that commit's own scripts, once, outside git, and prints its path.
#
#   tests/node/earlier.sh COMMIT
#
# It takes as long as a build of all that the programs depend on. CARGO_TARGET_DIR is not used.
set -eu
cd "$(dirname "$0")/../.."
[ -n "${1:-}" ] || { echo "earlier.sh: name the commit to upgrade from, as in 'make upgrade SINCE=HEAD~100'" >&2; exit 2; }
commit=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "earlier.sh: there is no commit $1" >&2; exit 1; }
place=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/earlier
deb=$place/$(printf %.8s "$commit").deb
mkdir -p "$place"
# Two that want one at once: the second waits, and finds it.
exec 8>"$place/.lock"
flock 8
if [ ! -e "$deb" ]; then
    tree=$place/tree
    export CARGO_TARGET_DIR="$place/target"
    trap 'git worktree remove --force "$tree"; rm -rf "$CARGO_TARGET_DIR" "$place/made"' EXIT
    git worktree prune
    git worktree add --quiet --force --detach "$tree" "$commit" >&2
    # The packages' scripts have moved.
    build=$(git ls-tree -r --name-only "$commit" | grep -m 1 'packaging/build\.sh$')
    (
        cd "$tree"
        ${CARGO:-cargo} build --quiet --profile dist --locked --package winddown
        WINDDOWN_XTASK='' "$build" --programs "$CARGO_TARGET_DIR/dist" --out "$place/made" --fast deb
    ) >&2 8>&-
    mv "$place/made"/*.deb "$deb"
fi
echo "$deb"
