//! Host ports.

use super::*;

fn with_ports(uid: &str, ports: &Value) -> Pod {
    pod(uid, &json!({"containers": [{"name": "c", "ports": ports}]}))
}

fn port(port: i32, protocol: Option<&str>, address: Option<&str>) -> Value {
    json!([{"containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": address}])
}

fn clash(there: &Pod, new: &Pod) -> bool {
    let mut taken = HostPorts::default();
    taken.add(there);
    taken.conflict(new).is_some()
}

#[test]
fn a_port_is_taken_per_protocol_and_address() {
    let (tcp, udp) = (Some("TCP"), Some("UDP"));
    let (local, lan, any) = (Some("127.0.0.1"), Some("10.0.0.1"), Some("0.0.0.0"));
    for (there, new, expected) in [
        ((80, None, None), (80, None, None), true),
        ((80, None, None), (81, None, None), false),
        ((80, None, None), (80, tcp, any), true),
        ((80, Some(""), Some("")), (80, tcp, None), true),
        ((80, tcp, None), (80, udp, None), false),
        ((80, tcp, local), (80, tcp, local), true),
        ((80, tcp, local), (80, tcp, lan), false),
        ((80, tcp, local), (80, tcp, any), true),
        ((80, tcp, any), (80, tcp, local), true),
        ((80, udp, any), (80, tcp, local), false),
        ((0, None, None), (0, None, None), false),
    ] {
        let there_pod = with_ports("o", &port(there.0, there.1, there.2));
        let new_pod = with_ports("u", &port(new.0, new.1, new.2));
        assert_eq!(clash(&there_pod, &new_pod), expected, "{there:?} and {new:?}");
    }
}

#[test]
fn sidecars_keep_their_ports_and_init_containers_do_not() {
    let init = |policy: Option<&str>| {
        let ports = port(80, None, None);
        let init = json!([{"name": "i", "ports": ports, "restartPolicy": policy}]);
        pod("o", &json!({"containers": [], "initContainers": init}))
    };
    let new = with_ports("u", &port(80, None, None));
    assert!(clash(&init(Some("Always")), &new));
    assert!(!clash(&init(None), &new));
}

#[test]
fn on_the_hosts_network_a_containers_port_is_the_hosts() {
    let ports = json!([{"containerPort": 80}]);
    let host = |uid, shared: bool| {
        let containers = json!([{"name": "c", "ports": ports}]);
        pod(uid, &json!({"containers": containers, "hostNetwork": shared}))
    };
    assert!(clash(&host("o", true), &host("u", true)));
    assert!(!clash(&host("o", false), &host("u", true)));
    assert!(!clash(&host("o", true), &host("u", false)));
}
