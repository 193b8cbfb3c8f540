#!/bin/sh
# Writes the checksums of all packages, and signs them.
#
#   programs/packaging/checksums.sh [--sign] [DIR]
#
# DIR: target/packages. SHA256SUMS is what "sha256sum --check" reads. --sign makes SHA256SUMS.asc beside it with
# gpg's default key, or the one that WINDDOWN_SIGNING_KEY names.
#
# Exit codes: 0 written, 1 could not be written, 2 wrong usage.
set -eu
sign=
case ${1:-} in
--sign) sign=1 && shift ;;
-*)
    sed -n 's/^#   //p' "$0" >&2
    exit 2
    ;;
esac
cd "${1:-$(dirname "$0")/../target/packages}"
export LC_ALL=C
rm -f SHA256SUMS SHA256SUMS.asc
set --
for file in *.deb *.rpm *.tar*; do
    [ -f "$file" ] && set -- "$@" "$file"
done
[ $# -gt 0 ] || {
    echo "checksums.sh: no packages in $PWD: run 'make packages' first" >&2
    exit 1
}
sha256sum -- "$@" >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
[ -z "$sign" ] || gpg --batch --yes ${WINDDOWN_SIGNING_KEY:+--local-user "$WINDDOWN_SIGNING_KEY"} \
    --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS
