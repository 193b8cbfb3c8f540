use serde_json::json;

use super::*;

fn service(namespace: &str, name: &str, ip: &str, ports: &serde_json::Value) -> api::Service {
    let object = json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": ip, "ports": ports},
    });
    serde_json::from_value(object).unwrap()
}

fn master() -> api::Service {
    service("default", "kubernetes", "1.2.3.1", &json!([{"protocol": "TCP", "port": 8081}]))
}

fn pairs(env: &[(&str, &str)]) -> Vec<(String, String)> {
    env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

const KUBERNETES: [(&str, &str); 7] = [
    ("KUBERNETES_SERVICE_HOST", "1.2.3.1"),
    ("KUBERNETES_SERVICE_PORT", "8081"),
    ("KUBERNETES_PORT", "tcp://1.2.3.1:8081"),
    ("KUBERNETES_PORT_8081_TCP", "tcp://1.2.3.1:8081"),
    ("KUBERNETES_PORT_8081_TCP_PROTO", "tcp"),
    ("KUBERNETES_PORT_8081_TCP_PORT", "8081"),
    ("KUBERNETES_PORT_8081_TCP_ADDR", "1.2.3.1"),
];

#[test]
fn every_pod_hears_of_the_api_server_and_of_its_own_services_if_it_wants() {
    let own = [service("shop", "test", "1.2.3.3", &json!([{"port": 8083}]))];
    assert_eq!(variables(&own, Some(&master()), false), pairs(&KUBERNETES));
    let mut expected = KUBERNETES.to_vec();
    expected.extend([
        ("TEST_SERVICE_HOST", "1.2.3.3"),
        ("TEST_SERVICE_PORT", "8083"),
        ("TEST_PORT", "tcp://1.2.3.3:8083"),
        ("TEST_PORT_8083_TCP", "tcp://1.2.3.3:8083"),
        ("TEST_PORT_8083_TCP_PROTO", "tcp"),
        ("TEST_PORT_8083_TCP_PORT", "8083"),
        ("TEST_PORT_8083_TCP_ADDR", "1.2.3.3"),
    ]);
    assert_eq!(variables(&own, Some(&master()), true), pairs(&expected));
    assert_eq!(variables(&[], None, true), []);
}

#[test]
fn names_ports_protocols_and_addresses_are_spelt_as_docker_did() {
    let ports = json!([
        {"name": "web-ui", "port": 80},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ]);
    let own = [service("shop", "my-db", "fd00::1", &ports)];
    let expected = pairs(&[
        ("MY_DB_SERVICE_HOST", "fd00::1"),
        ("MY_DB_SERVICE_PORT", "80"),
        ("MY_DB_SERVICE_PORT_WEB_UI", "80"),
        ("MY_DB_SERVICE_PORT_DNS", "53"),
        ("MY_DB_PORT", "tcp://[fd00::1]:80"),
        ("MY_DB_PORT_80_TCP", "tcp://[fd00::1]:80"),
        ("MY_DB_PORT_80_TCP_PROTO", "tcp"),
        ("MY_DB_PORT_80_TCP_PORT", "80"),
        ("MY_DB_PORT_80_TCP_ADDR", "fd00::1"),
        ("MY_DB_PORT_53_UDP", "udp://[fd00::1]:53"),
        ("MY_DB_PORT_53_UDP_PROTO", "udp"),
        ("MY_DB_PORT_53_UDP_PORT", "53"),
        ("MY_DB_PORT_53_UDP_ADDR", "fd00::1"),
    ]);
    assert_eq!(variables(&own, None, true), expected);
}

#[test]
fn services_without_an_address_or_a_port_are_not_told() {
    let ports = json!([{"port": 80}]);
    let own = [
        service("shop", "headless", "None", &ports),
        service("shop", "pending", "", &ports),
        service("shop", "portless", "1.2.3.4", &json!([])),
    ];
    assert_eq!(variables(&own, None, true), []);
}

#[test]
fn a_service_of_the_masters_name_in_the_pods_namespace_takes_its_place() {
    let own = [service("shop", "kubernetes", "9.9.9.9", &json!([{"port": 1}]))];
    let env = variables(&own, Some(&master()), true);
    assert_eq!(env[0], ("KUBERNETES_SERVICE_HOST".to_owned(), "9.9.9.9".to_owned()));
    assert_eq!(env.len(), 7, "names are not repeated");
    let in_default = variables(&[master()], Some(&master()), true);
    assert_eq!(in_default, pairs(&KUBERNETES));
}
