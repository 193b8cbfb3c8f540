//! Name servers and search domains.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as k8s;
use winddown_shared::Pod;

use super::super::{CriConfig, api};

/// Facts from the node's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostFacts {
    /// The content of the node's resolver file.
    pub(crate) resolv_conf: String,
}

/// The pod's DNS configuration. `None` leaves the runtime's own file in place.
pub(crate) fn dns(config: &CriConfig, pod: &Pod, host: &HostFacts) -> Option<api::DnsConfig> {
    let spec = pod.spec.as_ref()?;
    let of_cluster = match spec.dns_policy.as_deref() {
        Some("None") => return Some(with_own(api::DnsConfig::default(), spec.dns_config.as_ref())),
        Some("Default") => false,
        Some("ClusterFirstWithHostNet") => true,
        _ => !pod.is_on_host_network(),
    };
    let host = parse(&host.resolv_conf);
    // Without a cluster there is no cluster name server to ask first.
    if !of_cluster || config.dns.servers.is_empty() {
        return Some(with_own(host, spec.dns_config.as_ref()));
    }
    let domain = &config.dns.domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        searches.push(format!("{}.svc.{domain}", pod.namespace()));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    add(&mut searches, host.searches.into_iter());
    let cluster = api::DnsConfig {
        servers: config.dns.servers.iter().map(ToString::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    };
    Some(with_own(cluster, spec.dns_config.as_ref()))
}

/// Whether a resolver file names servers and all of them are on this host (`127.0.0.53`): a pod with a
/// network of its own cannot reach them.
pub(crate) fn asks_only_this_host(text: &str) -> bool {
    let servers = parse(text).servers;
    let is_here = |server: &String| server.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    !servers.is_empty() && servers.iter().all(is_here)
}

/// Adds the pod's own settings. An option of the pod replaces the one with the same name.
fn with_own(mut base: api::DnsConfig, own: Option<&k8s::PodDNSConfig>) -> api::DnsConfig {
    let Some(own) = own else { return base };
    add(&mut base.servers, own.nameservers.iter().flatten().cloned());
    add(&mut base.searches, own.searches.iter().flatten().cloned());
    for option in own.options.iter().flatten() {
        let Some(name) = option.name.as_deref() else { continue };
        let option = match option.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            _ => name.to_owned(),
        };
        set_option(&mut base.options, option);
    }
    base
}

/// Adds an option. It replaces the one with the same name.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().map(str::to_owned);
    options.retain(|known| name(known) != name(&option));
    options.push(option);
}

fn add(list: &mut Vec<String>, more: impl Iterator<Item = String>) {
    for one in more {
        if !list.contains(&one) {
            list.push(one);
        }
    }
}

/// Parses resolv.conf(5). The last `search` line counts, and a lone dot searches nothing; `options` lines add up.
fn parse(text: &str) -> api::DnsConfig {
    let mut dns = api::DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let values = || line.split_whitespace().skip(1).map(str::to_owned);
        match key {
            "nameserver" => dns.servers.extend(values().next()),
            "search" => {
                dns.searches.clear();
                let domains = values().map(|domain| domain.trim_end_matches('.').to_owned());
                add(&mut dns.searches, domains.filter(|domain| !domain.is_empty()));
            }
            "options" => values().for_each(|option| set_option(&mut dns.options, option)),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOST: &str = "# made by hand\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n\
                        search old.example\nsearch example.org .\noptions edns0\n";

    fn of(spec: &Value, cluster: &[&str]) -> api::DnsConfig {
        of_host(spec, cluster, HOST)
    }

    fn of_host(spec: &Value, cluster: &[&str], host: &str) -> api::DnsConfig {
        let mut config = CriConfig::below(std::path::Path::new("/"));
        config.dns.servers = cluster.iter().map(|ip| ip.parse().unwrap()).collect();
        let meta = json!({"name": "p", "namespace": "shop", "uid": "u"});
        let mut spec = spec.clone();
        spec["containers"] = json!([]);
        let object = json!({"metadata": meta, "spec": spec});
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        dns(&config, &pod, &HostFacts { resolv_conf: host.to_owned() }).unwrap()
    }

    #[test]
    fn the_policy_decides_whom_a_pod_asks() {
        let host = ["192.0.2.1", "192.0.2.2"];
        for (spec, cluster, servers) in [
            (json!({"dnsPolicy": "Default"}), &["10.0.0.10"][..], &host[..]),
            (json!({}), &[], &host),
            (json!({}), &["10.0.0.10"], &["10.0.0.10"]),
            (json!({"hostNetwork": true}), &["10.0.0.10"], &host),
            (
                json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
                &["10.0.0.10"],
                &["10.0.0.10"],
            ),
            (
                json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["9.9.9.9"]}}),
                &["10.0.0.10"],
                &["9.9.9.9"],
            ),
        ] {
            assert_eq!(of(&spec, cluster).servers, servers, "{spec}");
        }
    }

    #[test]
    fn a_pod_of_a_cluster_searches_its_namespace_first() {
        let found = of(&json!({}), &["10.0.0.10"]);
        let expected =
            ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org"];
        assert_eq!(found.searches, expected);
        assert_eq!(found.options, ["ndots:5"]);
    }

    #[test]
    fn lines_of_options_add_up_and_no_domain_is_searched_twice() {
        let text = "options timeout:1 ndots:2\noptions attempts:5\noptions ndots:3 rotate\n\
                    search example.org. cluster.local. example.org\n";
        let found = parse(text);
        assert_eq!(found.options, ["timeout:1", "attempts:5", "ndots:3", "rotate"]);
        assert_eq!(found.searches, ["example.org", "cluster.local"]);
        let in_cluster = of_host(&json!({}), &["10.0.0.10"], text).searches;
        let expected =
            ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org"];
        assert_eq!(in_cluster, expected);
    }

    #[test]
    fn a_stub_resolver_is_told_from_name_servers_that_pods_reach() {
        for (text, only_here) in [
            ("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n", true),
            ("nameserver 127.0.0.1\nnameserver ::1\n", true),
            ("nameserver 127.0.0.53\nnameserver 192.0.2.1\n", false),
            ("search lan\n", false),
            ("nameserver dns.example\n", false),
            ("", false),
        ] {
            assert_eq!(asks_only_this_host(text), only_here, "{text}");
        }
    }

    #[test]
    fn what_the_pod_asks_for_is_added_and_its_options_win() {
        let own = json!({"nameservers": ["192.0.2.1", "9.9.9.9"], "searches": ["a.example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}]});
        let found = of(&json!({"dnsConfig": own}), &["10.0.0.10"]);
        assert_eq!(found.servers, ["10.0.0.10", "192.0.2.1", "9.9.9.9"]);
        assert_eq!(found.searches.last().unwrap(), "a.example");
        assert_eq!(found.options, ["ndots:2", "rotate"]);
    }
}
