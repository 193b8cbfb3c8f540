#!/bin/sh
# Makes a Debian root that disposable nodes are laid over, once, and prints its path.
#
#   tests/node/base.sh [bookworm|trixie|sid] [plain|tools|containerd|rpm|uml|uml-containerd|qemu]
#
# The result is kept outside git, in ${XDG_CACHE_HOME:-~/.cache}/winddown/node, under a name that
# holds a checksum of what went into it: changing the package lists or the preparation below makes
# new bases, and nothing ever writes to one that is finished. Only the plain root of a suite is made
# by mmdebstrap; the others are copies of it with more packages. uml and qemu have a kernel in them that
# boots the very root it lies in: user-mode Linux, or Debian's own in an emulated machine (trixie and sid,
# on x86-64 only). Set WINDDOWN_DEBIAN_MIRROR to use another mirror than deb.debian.org.
#
# Exit codes, with the reason on standard error: 0 ready, 1 could not be made, 2 wrong usage, 3 this
# machine lacks something (root, a program, an architecture, a way to the mirror).
set -eu

suite=${1:-bookworm} flavour=${2:-plain}
case $suite in
bookworm | trixie | sid) ;;
*)
    echo "base.sh: unknown suite '$suite': use bookworm, trixie or sid" >&2
    exit 2
    ;;
esac
containers=containerd,runc,containernetworking-plugins,iproute2,busybox-static
uml=user-mode-linux,kmod,procps
case $flavour in
plain) packages=systemd-sysv,dbus,libpam-systemd ;;
rpm) packages=rpm ;;
tools) packages=ansible-core,curl,docker-registry,jq,man-db,python3-apt,skopeo ;;
containerd) packages=$containers ;;
uml) packages=$uml ;;
uml-containerd) packages=$uml,$containers ;;
qemu)
    packages=qemu-system-x86,virtiofsd,linux-image-cloud-amd64,udev,kexec-tools,kmod,procps
    ;;
*)
    echo "base.sh: unknown flavour '$flavour': use plain, tools, containerd, rpm, uml, uml-containerd or qemu" >&2
    exit 2
    ;;
esac

cache=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/node
here=$(cd "$(dirname "$0")" && pwd)
key=$(cat "$here/base.sh" "$here/src/node/xstate.c" | sha256sum | cut -c1-12)
name=$suite-$flavour
base=$cache/$name-$key

if [ -e "$base" ]; then
    echo "$base"
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "base.sh: making a node's root needs root: run 'sudo tests/node/base.sh $*' once" >&2
    exit 3
fi
if ! command -v mmdebstrap >/dev/null; then
    echo "base.sh: mmdebstrap is not installed: run 'apt-get install mmdebstrap'" >&2
    exit 3
fi
mirror=${WINDDOWN_DEBIAN_MIRROR:-http://deb.debian.org/debian}
case $flavour,$(uname -m) in
uml*,x86_64 | qemu,x86_64) ;;
uml*,* | qemu,*)
    echo "base.sh: nodes with a kernel of their own run on x86-64 only" >&2
    exit 3
    ;;
esac
[ "$flavour" = plain ] || plain=$("$here/base.sh" "$suite" plain)

mkdir -p "$cache"
# Two test runs that start together must not build twice, nor see a half-made base.
exec 9>"$cache/lock-$name"
flock 9
if [ -e "$base" ]; then
    echo "$base"
    exit 0
fi

partial=$cache/.partial-$name
log=$cache/$name.log
rm -rf "$partial"

# bootstrap: the plain root, out of nothing. sid's list of packages may be older than it wants to be.
bootstrap() {
    mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
        --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$partial" "$mirror"
}

# extend: another one, out of the plain root. Nothing is started, because systemd does not run there. No
# kernel of it needs an initial RAM disk.
extend() {
    cp --archive --reflink=auto "$plain" "$partial" &&
        cp /etc/resolv.conf "$partial/etc/resolv.conf" &&
        chroot "$partial" apt-get --quiet --option Acquire::Check-Valid-Until=false update &&
        INITRD=No DEBIAN_FRONTEND=noninteractive chroot "$partial" apt-get --quiet --yes \
            --option Dpkg::Options::=--force-unsafe-io --no-install-recommends install $(echo "$packages" | tr , ' ') &&
        case $flavour in
        uml) add_uml && add_line ;;
        # Overlays cannot lie on the host's files.
        uml-containerd) add_uml && add_line &&
            echo 'tmpfs /var/lib/containerd tmpfs size=400M 0 0' >>"$partial/etc/fstab" ;;
        qemu) add_line ;;
        esac
}

# add_uml: what user-mode Linux needs beside its package.
add_uml() {
    cc -shared -fPIC -O2 -Wall -Werror -o "$partial/usr/lib/xstate.so" "$here/src/node/xstate.c" &&
        cp --archive "$partial/usr/lib/uml/modules" "$partial/usr/lib/"
}

# add_line: the way to run commands where nothing of the host reaches in but the disk and a serial line.
# A request is a script; what it printed lies beside it when the line tells that it has ended.
add_line() {
    mkdir -p "$partial/var/lib/node-line"
    cat >"$partial/usr/local/sbin/node-line" <<'LINE'
#!/bin/sh
exec 3<>/dev/ttyS0
stty raw -echo <&3
cd /var/lib/node-line || exit
echo 0 0 >&3
while read -r n <&3; do
    {
        (cd / && exec sh "/var/lib/node-line/$n.sh") >"$n.out" 2>"$n.err" </dev/null 3<&-
        echo "$n $?" >&3
    } &
done
LINE
    chmod 0755 "$partial/usr/local/sbin/node-line"
    # It is there until the very end: what a power-off does can be asked while it lasts.
    cat >"$partial/etc/systemd/system/node-line.service" <<'UNIT'
[Unit]
Description=Run what the host asks for
DefaultDependencies=no
After=local-fs.target

[Service]
ExecStart=/usr/local/sbin/node-line
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Environment=HOME=/root LANG=C.UTF-8
UNIT
    mkdir -p "$partial/etc/systemd/system/sysinit.target.wants"
    ln -sf ../node-line.service "$partial/etc/systemd/system/sysinit.target.wants/"
}

if [ "$flavour" = plain ]; then
    echo "base.sh: making $base (half a minute to three, once)" >&2
    made_by=bootstrap
else
    echo "base.sh: making $base (some seconds, once)" >&2
    made_by=extend
fi
if ! $made_by >"$log" 2>&1 9>&-; then
    rm -rf "$partial"
    case $mirror in
    http*)
        if ! wget --quiet --spider --tries=1 --timeout=20 "$mirror/dists/$suite/InRelease" 9>&-; then
            echo "base.sh: $mirror cannot be reached; the log is $log" >&2
            exit 3
        fi
        ;;
    esac
    tail -n 15 "$log" >&2
    echo "base.sh: $name could not be made; the log is $log" >&2
    exit 1
fi

cd "$partial"
rm -rf var/cache/apt/*.bin var/cache/apt/archives/*.deb var/lib/apt/lists/*
rm -f etc/resolv.conf
# The journal is kept: tests read it after the node is gone.
mkdir -p var/log/journal
echo winddown-node >etc/hostname
echo '127.0.0.1 localhost winddown-node' >etc/hosts
# An empty machine-id would make the first boot of every copy a "first boot" with presets.
echo 5d1c0f7e2a9b4c38a6e70d91b2f3c4a5 >etc/machine-id

# What a node needs before anything else starts, because nspawn hands it less than a machine has.
cat >usr/local/sbin/prepare-node <<'PREPARE'
#!/bin/sh
# nspawn mounts the cgroup v1 hierarchies read-only.
while read -r _ path type _; do
    case $type in
    cgroup) mount -o remount,bind,rw "$path" ;;
    esac
done </proc/mounts
# There is no kernel log to write to in a container.
[ -e /dev/kmsg ] || ln -s /dev/null /dev/kmsg
PREPARE
chmod 0755 usr/local/sbin/prepare-node
cat >etc/systemd/system/prepare-node.service <<'UNIT'
[Unit]
Description=Prepare the disposable node
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/prepare-node

[Install]
WantedBy=sysinit.target
UNIT
mkdir -p etc/systemd/system/sysinit.target.wants
ln -sf ../prepare-node.service etc/systemd/system/sysinit.target.wants/prepare-node.service
# Periodic jobs, consoles, the network's start and modules, which are the host's, would only add time and
# noise to a test. Which kernel is loaded for kexec is for the test to say.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer getty.target console-getty.service systemd-networkd.service \
    systemd-timesyncd.service systemd-resolved.service systemd-tmpfiles-clean.timer \
    systemd-modules-load.service kexec-load.service kexec.service; do
    ln -sf /dev/null "etc/systemd/system/$unit"
done

cd /
mv "$partial" "$base"
echo "$base"
