#!/bin/sh
# Builds the programs that tests on nodes run, without symbols, into target/shipped, and prints that path.
#
#   tests/node/programs.sh PROFILE
#
# New files each time: a node may still have the last ones. `target/shipped/build` tells them apart; each run of tests
# says it.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
profile=$1
if [ "$profile" = dev ]; then
    built=$target/debug
    make --no-print-directory programs >&2
else
    built=$target/$profile
    ${CARGO:-cargo} build --profile "$profile" --package winddown --bins >&2
fi
mkdir -p "$target/shipped"
for program in winddown winddownd winddown-shim; do
    rm -f "$target/shipped/$program"
    strip -o "$target/shipped/$program" "$built/$program"
done
commit=$(git rev-parse --short HEAD 2>/dev/null) || commit=unknown
[ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || commit="$commit, changed"
cd "$target/shipped"
{
    echo "$(./winddown version | head -n 1), profile $profile, commit $commit"
    sha256sum winddown winddownd winddown-shim
} >build
pwd
