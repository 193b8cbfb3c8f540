#!/bin/sh
# Makes packages from programs that are built already.
#
#   programs/packaging/build.sh [--programs DIR] [--machine MACHINE [--own DIR]] [--out DIR] [--revision N]
#                      [--fast] [--check] deb|rpm|tarball|stage...
#
# --programs: target/dist unless said otherwise. The deb and the rpm want programs that are linked
# with the system's libc, the tarball such that are linked with nothing.
# MACHINE: what the programs are for, as `uname -m` says it, this one unless said otherwise. Those for another one cannot
# be run here: units and manuals come from this machine's own, in target/dist unless said otherwise.
# --out: target/packages. N: the package's own revision of the same version, 1.
# --fast: packages for trying: larger, in a fraction of the time. Without it a deb or an rpm
# needs a maintainer: WINDDOWN_MAINTAINER='Name <address> https://repository'.
# --check: stop before anything is made.
# stage: no package, but what the packages hold in folders of --out: "package" and "tarball".
#
# What goes where is what "winddown install" of those very programs puts in place, moved to where
# packages keep such files (/usr/lib instead of /etc): there is no second list of units. The same
# programs and the same commit give the same bytes; the date in the packages is SOURCE_DATE_EPOCH, or
# else the commit's.
#
# Exit codes: 0 made, 1 could not be made, 2 wrong usage.
set -eu
umask 022
cd "$(dirname "$0")/../.."
repository=$PWD
packages=$repository/target/packages
cargo=${CARGO:-cargo}
export LC_ALL=C

. programs/packaging/maintainer.sh
trial='For trying only, nobody answers for it <nobody@localhost>'
check= programs= own=${CARGO_TARGET_DIR:-target}/dist out=$packages revision=1 fast= payload=zstd formats= machine=$(uname -m)
while [ $# -gt 0 ]; do
    case $1 in
    --programs) programs=$2 && shift ;;
    --machine) machine=$2 && shift ;;
    --own) own=$2 && shift ;;
    --out) out=$2 && shift ;;
    --revision) revision=$2 && shift ;;
    --fast) fast=--fast payload=none ;;
    --check) check=1 ;;
    deb | rpm | tarball | stage) formats="$formats $1" ;;
    *)
        sed -n 's/^#   //p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
[ -n "$formats" ] || exec "$0" --help
programs=$(realpath -m "${programs:-$own}")

die() {
    echo "build.sh: $*" >&2
    exit 1
}

. programs/packaging/machine.sh
binary=$programs/winddown
[ -z "$tools" ] || binary=$(realpath -m "$own")/winddown

case "$maintainer,$fast, $formats " in
,--fast,*) maintainer=$trial ;;
,,*' deb '* | ,,*' rpm '*)
    die "who answers for the packages? WINDDOWN_MAINTAINER='Name <address> https://repository'; --fast makes some for trying"
    ;;
esac
[ -z "$check" ] || exit 0
[ -x "$binary" ] || die "$binary is not there: run 'cargo build --profile dist --locked --package winddown' first"
mkdir -p "$packages" "$out"
out=$(realpath "$out")
# The metadata in Cargo.toml names one staging folder.
exec 9>"$packages/.lock"
flock 9

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || SOURCE_DATE_EPOCH=1
fi
export SOURCE_DATE_EPOCH
version=$("$binary" version | sed -n 's/^winddown \([0-9][^ ]*\).*/\1/p')
[ -n "$version" ] || die "$binary does not tell its version"
root=$packages/stage
doc=$root/usr/share/doc/winddown

# --- What "winddown install" puts in place ----------------------------------------------------------

stage_installation() {
    installed=$packages/installed
    rm -rf "$root" "$installed"
    for runtime in cri process; do
        mkdir -p "$installed/$runtime"
        "$binary" install --root "$installed/$runtime" --runtime $runtime --no-enable >/dev/null 9>&-
    done
    vendor=$root/usr/lib
    mkdir -p "$vendor/systemd" "$root/usr/share/winddown" "$root/usr/bin"
    cp -R "$installed/process/etc/systemd/system" "$vendor/systemd/system"
    # The scopes' drop-ins order containers behind the agent; without a container runtime there are
    # no such scopes.
    cp -R "$installed"/cri/etc/systemd/system/*.scope.d "$vendor/systemd/system/"
    cp -R "$installed/process/etc/sysusers.d" "$installed/process/etc/tmpfiles.d" "$vendor/"
    cp "$installed/process/etc/winddown/config.yaml" "$root/usr/share/winddown/"
    # Line tables are two thirds of the file and of no use on a node.
    for program in "$installed"/process/usr/bin/*; do
        program=${program##*/}
        ${tools}strip --strip-unneeded --remove-section=.comment --remove-section=.note \
            -o "$root/usr/bin/$program" "$programs/$program"
    done
    rm -rf "$installed"
}

# --- What reads well beside it ----------------------------------------------------------------------

stage_documents() {
    mkdir -p "$doc" "$root/usr/lib/systemd/catalog" \
        "$root/usr/share/bash-completion/completions" "$root/usr/share/fish/vendor_completions.d" \
        "$root/usr/share/zsh/vendor-completions"
    "$binary" man --dir "$root/usr/share/man" >/dev/null 9>&-
    find "$root/usr/share/man" -type f -exec gzip -9n {} +
    "$binary" completions bash >"$root/usr/share/bash-completion/completions/winddown"
    "$binary" completions fish >"$root/usr/share/fish/vendor_completions.d/winddown.fish"
    "$binary" completions zsh >"$root/usr/share/zsh/vendor-completions/_winddown"
    xtask pages package "$root"
    xtask inventory "$doc"
    cp programs/packaging/catalog/winddown.catalog "$root/usr/lib/systemd/catalog/"
    mkdir "$root/usr/share/winddown/schemas"
    names=$("$binary" schema --list)
    for name in $names; do
        "$binary" schema "$name" >"$root/usr/share/winddown/schemas/$name.json"
    done
}

# Where it is built already: cargo would wait for any other that compiles.
xtask() {
    if [ -n "${WINDDOWN_XTASK:-}" ]; then
        "$WINDDOWN_XTASK" "$@" || die "xtask $1 failed"
        return
    fi
    "$cargo" run --quiet --locked --package xtask -- "$@" 9>&- || die "xtask $1 failed"
}

# --- What only the package managers read --------------------------------------------------------------

stage_scripts() {
    rm -rf "$packages/scripts"
    for script in programs/packaging/scripts/deb/* programs/packaging/scripts/rpm/*; do
        target=$packages/scripts/${script#programs/packaging/scripts/}
        mkdir -p "${target%/*}"
        { printf '#!/bin/sh\nset -e\n\n'; cat programs/packaging/scripts/shared.sh; echo; cat "$script"; } >"$target"
        chmod 0755 "$target"
    done
    mkdir -p "$root/usr/share/lintian/overrides"
    cp programs/packaging/deb/lintian-overrides "$root/usr/share/lintian/overrides/winddown"
    if [ "$maintainer" = "$trial" ]; then
        cat programs/packaging/deb/lintian-overrides-trial >>"$root/usr/share/lintian/overrides/winddown"
    fi
    {
        head -n 2 programs/packaging/deb/copyright
        [ -z "$sources" ] || printf 'Upstream-Contact: %s\nSource: %s\n' "$maintainer" "$sources"
        tail -n +3 programs/packaging/deb/copyright
    } >"$packages/copyright"
    cat >"$packages/changelog" <<CHANGELOG
winddown ($version-$revision) unstable; urgency=medium

  * Version $version. The repository has the history.

 -- $maintainer  $(date --utc -R --date="@$SOURCE_DATE_EPOCH")
CHANGELOG
}

# Everything gets the one date.
date_everything() {
    find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# --- The packages -------------------------------------------------------------------------------------

# The metadata names the oldest libc that has all the program uses.
check_libc() {
    newest=$(${tools}objdump -T "$root"/usr/bin/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    [ -n "$newest" ] || die "$programs: not linked with glibc: a tarball can be made of them"
    [ "$(printf 'GLIBC_2.34\n%s\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.34 ] ||
        die "$programs needs $newest, programs/packaging/deb/control promises libc6 2.34: fix one of them"
}

make_deb() {
    check_libc
    deb=$packages/deb
    rm -rf "$deb"
    cp -R "$root" "$deb"
    mkdir "$deb/DEBIAN"
    cp "$packages/copyright" "$deb/usr/share/doc/winddown/"
    gzip -9n <"$packages/changelog" >"$deb/usr/share/doc/winddown/changelog.Debian.gz"
    cp "$packages/scripts/deb/"* "$deb/DEBIAN/"
    [ -n "$tools" ] || architecture=$(dpkg --print-architecture)
    {
        printf 'Package: winddown\nVersion: %s-%s\nArchitecture: %s\nMaintainer: %s\n' "$version" "$revision" "$architecture" "$maintainer"
        printf 'Installed-Size: %s\n' "$(du -sk --apparent-size "$root" | cut -f 1)"
        cat programs/packaging/deb/control
    } >"$deb/DEBIAN/control"
    date_everything "$deb"
    file=$out/winddown_$version-${revision}_$architecture.deb
    dpkg-deb --root-owner-group -Zxz ${fast:+-z0} --build "$deb" "$file" >/dev/null 9>&-
    echo "$file"
}

make_rpm() {
    check_libc
    # "builtin": what rpm's own finder says differs between machines that have it and those without.
    "$(programs/packaging/tools.sh cargo-generate-rpm)" generate-rpm --package programs --arch "$machine" --auto-req builtin \
        --payload-compress $payload --set-metadata "release = \"$revision\"" --set-metadata "vendor = \"$maintainer\"" \
        ${sources:+--set-metadata "url = \"$sources\""} --output "$out/" 9>&-
    echo "$out/winddown-$version-$revision.$machine.rpm"
}

# What the packages hold, for tests.
make_stage() {
    rm -rf "$out/package" "$out/tarball"
    cp -R "$root" "$out/package"
    fill_folder "$out/tarball"
    echo "$out"
}

# One folder with the programs, which install themselves, and what there is to read.
fill_folder() {
    mkdir -p "$1/completions"
    cp "$root"/usr/bin/* LICENSE "$doc/licences.txt" "$doc/winddown.cdx.json" "$1/"
    cp -R "$root/usr/share/man" "$1/"
    xtask pages tarball "$1"
    cp "$root/usr/share/bash-completion/completions/winddown" "$1/completions/winddown.bash"
    cp "$root/usr/share/fish/vendor_completions.d/winddown.fish" "$1/completions/"
    cp "$root/usr/share/zsh/vendor-completions/_winddown" "$1/completions/"
    cp "$root/usr/lib/systemd/catalog/winddown.catalog" "$1/"
}

make_tarball() {
    if ldd "$programs/winddown" >/dev/null 2>&1 && ! ldd "$programs/winddown" 2>&1 | grep -q 'statically linked'; then
        die "$programs/winddown needs shared libraries: give programs that do not with --programs"
    fi
    case $programs/ in
    *-musl/*) libc=musl ;;
    *) libc=gnu-static ;;
    esac
    name=winddown-$version-$machine-linux-$libc
    folder=$packages/$name
    rm -rf "$folder"
    fill_folder "$folder"
    tar --create --directory="$packages" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
        --mode=u+rw,go+r,go-w --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip -9n >"$out/$name.tar.gz"
    rm -rf "$folder"
    echo "$out/$name.tar.gz"
}

stage_installation
stage_documents
stage_scripts
date_everything "$root"
date_everything "$packages/scripts"
date_everything "$packages/copyright"
if [ "$maintainer" = "$trial" ]; then
    echo "build.sh: for trying only: WINDDOWN_MAINTAINER does not say who answers for these packages" >&2
fi
for format in $formats; do
    "make_$format"
done
