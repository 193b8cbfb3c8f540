# Has metrics-server read the node, and fails unless `kubectl top` has figures of the node and of each container, one of
# which only sleeps. A part of run.sh.
signed metrics /CN=metrics-server subjectAltName=DNS:metrics-server.kube-system.svc
cat >"$work/top.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: top, namespace: default}
spec:
  nodeName: n1
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
  - {name: busy, image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1", command: [sh, -c, "while :; do sleep 0.1; done"]}
  - {name: idle, image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1", command: [sleep, "100000"]}
---
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{port: 443, targetPort: 4443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}}
addressType: IPv4
ports: [{name: "", port: 4443, protocol: TCP}]
endpoints: [{addresses: [$address]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: $(base64 -w0 "$work/ca.crt")
  service: {name: metrics-server, namespace: kube-system}
END
eventually "the API server does not take the metrics server" as_admin apply --validate=false -f "$work/top.yaml"
"$WINDDOWN_METRICS_SERVER" --kubeconfig="$work/admin.kubeconfig" --authentication-kubeconfig="$work/admin.kubeconfig" \
    --authorization-kubeconfig="$work/admin.kubeconfig" --secure-port=4443 --tls-cert-file="$work/metrics.crt" \
    --tls-private-key-file="$work/metrics.key" --kubelet-certificate-authority="$work/ca.crt" \
    --kubelet-preferred-address-types=InternalIP --metric-resolution=15s --kubelet-request-timeout=10s \
    >"$work/log/metrics-server" 2>&1 &
server=$!
eventually "kubectl top has no figures of the node" as_admin top node n1
eventually "kubectl top has no figures of the pod" as_admin top pod top --containers
for container in busy idle; do
    as_admin top pod top --containers | grep -q "^top  *$container  *[0-9]*m  *[0-9]*Mi" || give_up "kubectl top lacks $container"
done
as_admin top node n1
as_admin top pod top --containers
as_admin delete -f "$work/top.yaml" >"$work/log/top"
kill $server
