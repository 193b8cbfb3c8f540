#!/bin/sh
# Makes the Debian root that disposable nodes are laid over, once, and prints its path.
#
#   tests/node/base.sh [plain|containerd|rpm]
#
# The result is kept outside git, in ${XDG_CACHE_HOME:-~/.cache}/winddown/node, under a name that
# holds a checksum of what went into it: changing the package list or the preparation below makes
# a new base, and nothing ever writes to one that is finished. Set WINDDOWN_DEBIAN_MIRROR to use
# another mirror than debootstrap's own default.
#
# Exit codes: 0 ready, 1 could not be made (the reason is on standard error), 2 wrong usage.
set -eu

flavour=${1:-plain}
suite=bookworm
packages=systemd-sysv,dbus,libpam-systemd
case $flavour in
plain) ;;
rpm) packages=$packages,rpm ;;
containerd) packages=$packages,containerd,runc,containernetworking-plugins,iproute2,busybox-static ;;
*)
    echo "base.sh: unknown flavour '$flavour': use plain, containerd or rpm" >&2
    exit 2
    ;;
esac

cache=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/node
key=$({ echo "$suite $packages"; cat "$0"; } | sha256sum | cut -c1-12)
base=$cache/$flavour-$key

if [ -e "$base" ]; then
    echo "$base"
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "base.sh: making a node's root needs root: run 'sudo make node-base' once" >&2
    exit 1
fi
if ! command -v debootstrap >/dev/null; then
    echo "base.sh: debootstrap is not installed: run 'apt-get install debootstrap'" >&2
    exit 1
fi

mkdir -p "$cache"
# Two test runs that start together must not build twice, nor see a half-made base.
exec 9>"$cache/lock"
flock 9
if [ -e "$base" ]; then
    echo "$base"
    exit 0
fi

partial=$cache/.partial-$flavour
rm -rf "$partial"
echo "base.sh: making $base (about half a minute, once)" >&2
if ! debootstrap --variant=minbase --include="$packages" "$suite" "$partial" \
    ${WINDDOWN_DEBIAN_MIRROR:+"$WINDDOWN_DEBIAN_MIRROR"} >"$cache/debootstrap-$flavour.log" 2>&1 9>&-; then
    tail -n 15 "$cache/debootstrap-$flavour.log" >&2
    echo "base.sh: debootstrap failed; its log is $cache/debootstrap-$flavour.log" >&2
    rm -rf "$partial"
    exit 1
fi

cd "$partial"
rm -rf var/cache/apt/*.bin var/cache/apt/archives/*.deb var/lib/apt/lists/*
# The journal is kept: tests read it after the node is gone.
mkdir -p var/log/journal
echo winddown-node >etc/hostname
echo '127.0.0.1 localhost winddown-node' >etc/hosts
# An empty machine-id would make the first boot of every copy a "first boot" with presets.
echo 5d1c0f7e2a9b4c38a6e70d91b2f3c4a5 >etc/machine-id
rm -f etc/resolv.conf

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
ln -s ../prepare-node.service etc/systemd/system/sysinit.target.wants/prepare-node.service
# Periodic jobs, consoles and the network's start would only add time and noise to a test.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer getty.target console-getty.service systemd-networkd.service \
    systemd-timesyncd.service systemd-resolved.service systemd-tmpfiles-clean.timer; do
    ln -sf /dev/null "etc/systemd/system/$unit"
done

cd /
mv "$partial" "$base"
echo "$base"
