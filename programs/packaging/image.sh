#!/bin/sh
# Makes an OCI image of static programs, for companion as a DaemonSet. Neither a daemon nor a registry is needed: an image
# is a tarball of JSON and one layer.
#
#   programs/packaging/image.sh [--programs DIR] [--out DIR] [--machine MACHINE] [--shared]
#
# --programs: target/MACHINE-unknown-linux-musl/dist, or -gnu where programs/packaging/static.sh linked with that.
# --out: target/packages. MACHINE: as `uname -m` says it: x86_64, aarch64. --shared takes programs that need shared
# libraries, for tests, which mount them.
#
# The image has winddownd and winddown, and directories to mount something on; nothing else: no shell, no shim, because a
# kubelet runs the containers. The same programs and the same commit give the same bytes, as with programs/packaging/build.sh.
#
# Exit codes: 0 made, 1 could not be made, 2 wrong usage.
set -eu
umask 022
cd "$(dirname "$0")/../.."
export LC_ALL=C

. programs/packaging/maintainer.sh
answerable=
if [ -n "$maintainer" ]; then
    authors=$(printf %s "$maintainer" | sed 's/[\\"]/\\&/g')
    answerable=",\"org.opencontainers.image.authors\":\"$authors\",\"org.opencontainers.image.source\":\"$sources\""
fi

programs= out=target/packages machine=$(uname -m) shared= level=9
while [ $# -gt 0 ]; do
    case $1 in
    --programs) programs=$2 && shift ;;
    --out) out=$2 && shift ;;
    --machine) machine=$2 && shift ;;
    --shared) shared=1 level=1 ;;
    *)
        sed -n 's/^#   //p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done

die() {
    echo "image.sh: $*" >&2
    exit 1
}

. programs/packaging/machine.sh
[ -n "$architecture" ] || die "machine '$machine': images are for x86_64 and aarch64"
target=${CARGO_TARGET_DIR:-target}
for libc in musl gnu; do
    built=$target/$machine-unknown-linux-$libc/dist
    [ -n "$programs" ] || [ ! -x "$built/winddownd" ] || programs=$built
done
[ -x "$programs/winddownd" ] && [ -x "$programs/winddown" ] ||
    die "no static programs: programs/packaging/static.sh makes them, --programs says where others are"
for program in winddownd winddown; do
    [ -n "$shared" ] || ! grep -q '/lib[^/]*/ld-\(linux\|musl\)' "$programs/$program" ||
        die "$programs/$program needs shared libraries, and the image has none"
done
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || SOURCE_DATE_EPOCH=1
fi
created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A tarball in which everything has one date and belongs to root.
pack() {
    tar --create --directory="$1" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
        --mode=u+rw,go+r,go-w --mtime="@$SOURCE_DATE_EPOCH" .
}

# add FILE TYPE [FIELDS]: moves it to where its contents name it, and prints its descriptor.
add() {
    digest=$(sha256sum "$1" | cut -d ' ' -f 1)
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%s%s}' \
        "$2" "$digest" "$(stat -c %s "$1")" "${3:-}"
    mv "$1" "$blobs/$digest"
}

# --- The layer ---------------------------------------------------------------------------------------

root=$work/root
mkdir -p "$root/usr/bin" "$root/etc/winddown" "$root/run/winddown" "$root/tmp" \
    "$root/var/lib/winddown" "$root/var/log/winddown" "$root/usr/share/doc/winddown" "$root/usr/share/winddown"
cp LICENSE "$root/usr/share/doc/winddown/"
# What the doctor names.
cp -R cluster/rbac "$root/usr/share/winddown/"
for program in winddownd winddown; do
    # A machine that builds for another may have no strip for it.
    strip --strip-unneeded --remove-section=.comment -o "$root/usr/bin/$program" "$programs/$program" 2>/dev/null ||
        cp "$programs/$program" "$root/usr/bin/$program"
done

# --- The image ---------------------------------------------------------------------------------------

layout=$work/layout
blobs=$layout/blobs/sha256
mkdir -p "$blobs"
type=application/vnd.oci.image
pack "$root" >"$work/layer.tar"
layer_id=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
gzip -${level}n "$work/layer.tar"
layer=$(add "$work/layer.tar.gz" $type.layer.v1.tar+gzip)
cat >"$work/config" <<CONFIG
{"created":"$created","architecture":"$architecture","os":"linux",
"config":{"Entrypoint":["/usr/bin/winddownd"],"Env":["PATH=/usr/bin"],"StopSignal":"SIGTERM",
"Labels":{"org.opencontainers.image.title":"winddown","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"$answerable}},
"rootfs":{"type":"layers","diff_ids":["sha256:$layer_id"]},
"history":[{"created":"$created","created_by":"programs/packaging/image.sh"}]}
CONFIG
config=$(add "$work/config" $type.config.v1+json)
printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' \
    $type.manifest.v1+json "$config" "$layer" >"$work/manifest"
# The name that programs/packaging/kubernetes/companion.yaml asks for; containerd takes it from here.
name=localhost/winddown:$version
manifest=$(add "$work/manifest" $type.manifest.v1+json \
    ",\"platform\":{\"architecture\":\"$architecture\",\"os\":\"linux\"},\"annotations\":{\"io.containerd.image.name\":\"$name\",\"org.opencontainers.image.ref.name\":\"$version\"}")
printf '{"schemaVersion":2,"mediaType":"%s","manifests":[%s]}' $type.index.v1+json "$manifest" >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
file=$(realpath "$out")/winddown-$version-$machine-image.tar
pack "$layout" >"$file"
echo "$file"
