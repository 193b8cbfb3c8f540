#!/bin/sh
# The emulated arm64 machine as a node, by README's commands: installs the package, runs pods and powers off through
# logind; booted again, it says how the shutdown was.
#
#   arm64-node.sh prepare ROOT DEB    makes systemd run this at each boot of ROOT
#   arm64-node.sh                     on the node
set -eu
if [ "${1:-}" = prepare ]; then
    root=$2
    cp "$3" "$root/winddown.deb"
    echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
    echo arm64 >"$root/etc/hostname"
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    # It asks for the node's end, so that nothing may wait for its own.
    cat >"$root/etc/systemd/system/node-test.service" <<UNIT
[Unit]
After=dbus.service systemd-logind.service
[Service]
ExecStart=sh /src/tests/node/arm64-node.sh
Environment=LANG=C.UTF-8 DPKG_COLORS=never
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyAMA0
UNIT
    ln -s ../node-test.service "$root/etc/systemd/system/multi-user.target.wants/"
    exit
fi

finish() {
    if [ $? = 0 ]; then echo "test result: ok. $1 passed; 0 failed"; else echo "FAILED: node"; fi
    systemctl --no-block poweroff
}
if [ -e /var/lib/winddown/reports ]; then
    trap 'finish 1' EXIT
    winddown wait --for report
    report=$(winddown report)
    echo "$report"
    echo "$report" | grep -q '^Clean shutdown: 2 pods exited by themselves'
    exit
fi
trap 'finish 0' EXIT
uname -srm
systemctl --version | head -n 1
# The packages that it depends on are unpacked, and dpkg knows nothing of them.
dpkg --force-depends --install /winddown.deb
cp /src/docs/examples/node/web-1.yaml /src/docs/examples/node/dns.yaml /etc/winddown/pods/
systemctl enable --now winddown
winddown wait --for protected
for _ in $(seq 60); do
    running=$(winddown status -o json | grep -o '"phase": *"Running"' | wc -l)
    [ "$running" != 2 ] || break
    sleep 1
done
winddown status
[ "$running" = 2 ] || { journalctl --no-pager --unit=winddown && false; }
