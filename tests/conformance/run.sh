#!/bin/sh
# Runs the tests of Kubernetes' own suite that every node has to pass, sig-node's [NodeConformance] without the slow and
# the disruptive, on a node in cluster mode beside real parts of a cluster, and the same on a kubelet if WINDDOWN_KUBELET
# names one. Writes target/conformance/results.md, or with WRITE=1 tests/conformance/results.md, unless FOCUS=REGEXP picks some
# of the tests without ADD. If WINDDOWN_METRICS_SERVER names a metrics-server, `kubectl top` has to have figures first.
#
# Everything runs in a network, a process table and mounts of its own, which end with this script: nothing of the machine
# is changed, and nothing is downloaded. SHARDS (8) tests run at the same time, each for LIMIT (15m) at most, and all of
# them RUNS (1) times. Logs and records of the runs stay in target/conformance until the next time; with ADD=1 the next
# runs are added to them. RUNS=0 writes the page from the records that are there.
set -eu
cd "$(dirname "$0")/../.."
here=tests/conformance

skip() {
    echo "SKIPPED: conformance: $1"
    exit ${WINDDOWN_NO_SKIP:+1}
}

runs=${RUNS:-1}
if [ "${1:-}" != inside ]; then
    out=$(realpath "${CARGO_TARGET_DIR:-target}")/conformance
    [ "$runs" != 0 ] || exec python3 $here/suite.py page "$out"
    # Records of some tests are not among those of all, unless they are added to them.
    [ -n "${ADD:-}" ] || out=$out${FOCUS:+-focus}
    [ "$(id -u)" = 0 ] || skip "this needs root"
    for name in WINDDOWN_E2E_TEST WINDDOWN_E2E_AGNHOST WINDDOWN_KUBE_APISERVER WINDDOWN_KUBE_CONTROLLER_MANAGER \
        WINDDOWN_KUBE_SCHEDULER; do
        [ -x "$(printenv "$name")" ] || skip "$name names no program"
    done
    for program in "${WINDDOWN_ETCD:-etcd}" "${WINDDOWN_KUBECTL:-kubectl}" containerd runc ctr openssl python3 cc unshare; do
        command -v "$program" >/dev/null || skip "there is no $program"
    done
    [ -x "${WINDDOWN_CNI:-/usr/lib/cni}/bridge" ] || skip "WINDDOWN_CNI has no network plugins"
    [ -n "${ADD:-}" ] || rm -rf "$out"
    ended=0
    for node in winddown ${WINDDOWN_KUBELET:+kubelet}; do
        export node work="$out/$node"
        mkdir -p "$work"
        cp "$out"/../debug/winddownd "$out"/../debug/winddown-shim "$work"
        unshare --net --mount --uts --pid --fork --kill-child --mount-proc --propagation private \
            sh "$here/run.sh" inside || ended=1
        rm -f "$work/winddownd" "$work/winddown-shim" "$work/images.tar"
    done
    [ "${out%-focus}" != "$out" ] || python3 $here/suite.py page "$out"
    exit $ended
fi

address=10.99.0.1
# The first process of a process table heeds no signal that it has no answer to.
trap 'exit 130' INT TERM

# Prints why the cluster did not come up, and ends.
give_up() {
    echo "$1 within ten minutes; the last lines of each log:" >&2
    tail -n 5 "$work"/log/* >&2
    exit 1
}

# Tries a command for ten minutes, which a busy machine may need. What it says last is among the logs.
eventually() {
    what=$1
    shift
    echo "waiting: $what yet"
    for _ in $(seq 600); do
        if "$@" >"$work/log/last-command" 2>&1; then return; fi
        sleep 1
    done
    give_up "$what"
}

signed() { # NAME SUBJECT EXTENSIONS
    openssl req -newkey rsa:2048 -nodes -keyout "$work/$1.key" -out "$work/$1.csr" -subj "$2" 2>/dev/null
    echo "$3" >"$work/$1.ext"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 2 \
        -extfile "$work/$1.ext" -out "$work/$1.crt" 2>/dev/null
}

kubeconfig() { # NAME
    cat >"$work/$1.kubeconfig" <<END
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
 clusters: [{name: k, cluster: {server: "https://$address:6443", certificate-authority: $work/ca.crt}}],
 users: [{name: u, user: {client-certificate: $work/$1.crt, client-key: $work/$1.key}}]}
END
}

as_admin() {
    "${WINDDOWN_KUBECTL:-kubectl}" --kubeconfig "$work/admin.kubeconfig" "$@"
}

hostname n1
ip link set lo up
ip link add n1 type bridge
ip address add "$address/24" dev n1
ip link set n1 up
ip route add default dev n1
# Layers of images need a file system that is no overlay itself, as the target directory may be.
for directory in /run /var/lib /var/log; do mount -t tmpfs none $directory; done
mkdir -p "$work/log" "$work/net" "$work/static"

openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/ca.key" -out "$work/ca.crt" -days 2 -subj /CN=ca 2>/dev/null
signed server /CN=apiserver "subjectAltName=DNS:kubernetes.default.svc,IP:127.0.0.1,IP:$address,IP:10.0.0.1"
signed admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
signed node /O=system:nodes/CN=system:node:n1 extendedKeyUsage=clientAuth
signed front /CN=front extendedKeyUsage=clientAuth
signed serving /O=system:nodes/CN=system:node:n1 "subjectAltName=DNS:n1,IP:$address"
openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
kubeconfig admin
kubeconfig node

cat >"$work/net/pods.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods0", "isGateway": true,
 "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": "/run/addresses",
 "ranges": [[{"subnet": "10.88.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
cat >"$work/containerd.toml" <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  sandbox_image = "registry.k8s.io/pause:3.10.2"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "${WINDDOWN_CNI:-/usr/lib/cni}"
  conf_dir = "$work/net"
END
cat >"$work/winddown.yaml" <<END
apiVersion: winddown.dev/v1alpha1
kind: Configuration
mode: cluster
runtime: cri
containerRuntimeEndpoint: unix:///run/containerd.sock
nodeName: n1
nodeIP: $address
kubeconfig: $work/node.kubeconfig
nodeApiAddress: 0.0.0.0:10250
clientCAFile: $work/ca.crt
tlsCertFile: $work/serving.crt
tlsPrivateKeyFile: $work/serving.key
staticPodPath: $work/static
evictionHard: {memory.available: 100Mi}
END
cat >"$work/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $work/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $work/serving.crt
tlsPrivateKeyFile: $work/serving.key
staticPodPath: $work/static
evictionHard: {memory.available: 100Mi}
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
# The images cannot be pulled again: none goes because this machine's disk is full.
imageGCHighThresholdPercent: 100
END

containerd --config "$work/containerd.toml" >"$work/log/containerd" 2>&1 &
"${WINDDOWN_ETCD:-etcd}" --data-dir /var/lib/etcd --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 >"$work/log/etcd" 2>&1 &
"$WINDDOWN_KUBE_APISERVER" --advertise-address=$address --etcd-servers=http://127.0.0.1:2379 \
    --tls-cert-file="$work/server.crt" --tls-private-key-file="$work/server.key" --client-ca-file="$work/ca.crt" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$work/accounts.key" \
    --service-account-signing-key-file="$work/accounts.key" --service-cluster-ip-range=10.0.0.0/24 \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
    --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority="$work/ca.crt" \
    --requestheader-client-ca-file="$work/ca.crt" --requestheader-allowed-names=front --requestheader-username-headers=X-Remote-User \
    --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$work/front.crt" --proxy-client-key-file="$work/front.key" --enable-aggregator-routing \
    --kubelet-client-certificate="$work/admin.crt" --kubelet-client-key="$work/admin.key" \
    >"$work/log/kube-apiserver" 2>&1 &
eventually "the API server is not ready" as_admin get --raw /readyz
"$WINDDOWN_KUBE_CONTROLLER_MANAGER" --kubeconfig="$work/admin.kubeconfig" --leader-elect=false \
    --service-account-private-key-file="$work/accounts.key" --root-ca-file="$work/ca.crt" \
    >"$work/log/kube-controller-manager" 2>&1 &
"$WINDDOWN_KUBE_SCHEDULER" --kubeconfig="$work/admin.kubeconfig" --leader-elect=false \
    >"$work/log/kube-scheduler" 2>&1 &
python3 $here/suite.py images "$WINDDOWN_E2E_AGNHOST" "$work/images.tar"
eventually "containerd does not take the images" ctr --address /run/containerd.sock -n k8s.io images import "$work/images.tar"
# A server that is ready may still lack a namespace. One that is built without OpenAPI gives nothing to validate with, and
# kubectl says what to do.
validated=yes
rights() {
    as_admin apply -f cluster/rbac/node-extra.yaml 2>"$work/log/rights" && return
    cat "$work/log/rights"
    grep -q -e --validate=false "$work/log/rights" || return 1
    validated=no
    as_admin apply --validate=false -f cluster/rbac/node-extra.yaml
}
eventually "the API server does not take the rights" rights
[ $validated = yes ] || echo "the API server gives no OpenAPI: the rights were applied with --validate=false"
eventually "the controller manager makes no accounts" as_admin get serviceaccount default
case $node in
winddown) "$work/winddownd" --config "$work/winddown.yaml" >"$work/log/node" 2>&1 & ;;
kubelet)
    "$WINDDOWN_KUBELET" --config="$work/kubelet.yaml" --kubeconfig="$work/node.kubeconfig" --hostname-override=n1 \
        --node-ip=$address >"$work/log/node" 2>&1 &
    ;;
esac
eventually "the node is not ready" as_admin wait --for=condition=Ready --timeout=1s node/n1
[ -z "${WINDDOWN_METRICS_SERVER:-}" ] || . $here/top.sh
python3 $here/suite.py run "$WINDDOWN_E2E_TEST" "$work" "${SHARDS:-8}" "${LIMIT:-15m}" "$runs" "${FOCUS:-}"
