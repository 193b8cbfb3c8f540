//! Names and addresses: `hostname`, `dnsConfig`, `hostAliases`.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, Shortened, names as dns_names};

use super::{names, rules};

const ADDRESS: &str = "write one such as 10.9.8.7 or 2001:db8::1";
/// What a resolver in libc can do with.
const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const MOST_SEARCH_BYTES: usize = 2048;

pub(super) fn all(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    for (key, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            rules::label(check, key, name, "host name");
        }
    }
    if let Some(name) = &spec.hostname_override {
        rules::subdomain(check, "hostnameOverride", name, "host name");
        if name.len() > 64 {
            check.fail_at("hostnameOverride", "has more than 64 characters: shorten it");
        }
        let others =
            [("hostNetwork", spec.host_network), ("setHostnameAsFQDN", spec.set_hostname_as_fqdn)];
        for (other, _) in others.iter().filter(|(_, set)| *set == Some(true)) {
            let what = format!("cannot be together with `{other}: true`: remove one of the two");
            check.fail_at("hostnameOverride", what);
        }
    }
    check.each("hostAliases", spec.host_aliases.iter().flatten(), |check, alias| {
        check.key("ip", |check| address(check, &alias.ip));
        check.each("hostnames", alias.hostnames.iter().flatten(), |check, name| {
            if !dns_names::is_dns_subdomain(name) {
                let what = format!("`{}` is no host name: {}", Shortened(name), rules::SUBDOMAIN);
                check.fail(what);
            }
        });
    });
    check.key("dnsConfig", |check| dns(check, spec));
}

fn dns(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    let config = spec.dns_config.as_ref();
    let servers = config.and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    if servers.is_empty() && spec.dns_policy.as_deref() == Some("None") {
        let what = "is missing: with `dnsPolicy: None`, write at least one server";
        check.fail_at("nameservers", what);
    }
    let Some(config) = config else { return };
    if servers.len() > MOST_SERVERS {
        let what = format!("has {} entries: write {MOST_SERVERS} at most", servers.len());
        check.fail_at("nameservers", what);
    }
    check.each("nameservers", servers, |check, server| address(check, server));
    let searches = config.searches.as_deref().unwrap_or_default();
    if searches.len() > MOST_SEARCHES {
        let what = format!("has {} entries: write {MOST_SEARCHES} at most", searches.len());
        check.fail_at("searches", what);
    }
    if searches.join(" ").len() > MOST_SEARCH_BYTES {
        let what = format!("has more than {MOST_SEARCH_BYTES} characters: remove some");
        check.fail_at("searches", what);
    }
    check.each("searches", searches, |check, search| {
        let domain = search.strip_suffix('.').unwrap_or(search);
        if search != "." && !names::is_search_domain(domain) {
            let what = format!("`{}` is no domain: {}", Shortened(search), rules::SUBDOMAIN);
            check.fail(what);
        }
    });
    check.each("options", config.options.iter().flatten(), |check, option| {
        if option.name.as_ref().is_none_or(String::is_empty) {
            check.fail_at("name", "is missing: write an option such as ndots");
        }
    });
}

fn address(check: &mut FieldCheck<'_>, text: &str) {
    if !names::is_address(text) {
        check.fail(format!("`{}` is no IP address: {ADDRESS}", Shortened(text)));
    }
}
