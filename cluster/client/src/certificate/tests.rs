use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

use super::*;

fn made(from: i32, until: i32, name: Option<&str>) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(from, 2, 28);
    params.not_after = date_time_ymd(until, 12, 31);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    if let Some(name) = name {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().to_vec()
}

#[test]
fn lifetime_and_name_are_read_in_both_forms_of_time() {
    for (from, until) in [(1975, 2049), (2026, 2026), (2049, 2050), (2050, 4096)] {
        let facts = CertificateFacts::of_der(&made(from, until, Some("system:node:n1"))).unwrap();
        assert_eq!(facts.not_before, format!("{from}-02-28T00:00:00Z").parse().unwrap());
        assert_eq!(facts.not_after, format!("{until}-12-31T00:00:00Z").parse().unwrap());
        assert_eq!(facts.common_name.as_deref(), Some("system:node:n1"));
        assert_eq!(facts.organizations, ["system:nodes"]);
    }
}

#[test]
fn a_certificate_may_have_no_subject() {
    assert_eq!(CertificateFacts::of_der(&made(2020, 2021, None)).unwrap().common_name, None);
}

#[test]
fn every_organization_is_a_group() {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "someone");
    params.distinguished_name.push(DnType::OrganizationName, "a");
    // rcgen allows one attribute of each type, so the second one has a custom type.
    params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "b");
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let facts = CertificateFacts::of_der(certificate.der()).unwrap();
    assert_eq!(facts.organizations, ["a", "b"]);
    assert_eq!(facts.common_name.as_deref(), Some("someone"));
}

#[test]
fn the_first_certificate_of_a_chain_is_ones_own() {
    let pem = |name| pem::encode(&pem::Pem::new("CERTIFICATE", made(2020, 2021, Some(name))));
    let key = pem::encode(&pem::Pem::new("PRIVATE KEY", *b"key"));
    let chain = [key, pem("node"), pem("authority")].concat();
    let facts = CertificateFacts::of_pem(chain.as_bytes()).unwrap();
    assert_eq!(facts.common_name.as_deref(), Some("node"));
    assert_eq!(CertificateFacts::of_pem(b""), None);
}

#[test]
fn a_share_of_the_lifetime_is_between_its_ends() {
    let facts = CertificateFacts {
        not_before: "2026-01-01T00:00:00Z".parse().unwrap(),
        not_after: "2026-01-11T00:00:00Z".parse().unwrap(),
        common_name: None,
        organizations: Vec::new(),
    };
    assert_eq!(facts.after_share(0.0, None), facts.not_before);
    assert_eq!(facts.after_share(0.7, None), "2026-01-08T00:00:00Z".parse().unwrap());
    assert_eq!(facts.after_share(7.0, None), facts.not_after);
    let made = "2026-01-09T00:00:00Z".parse().unwrap();
    let due = "2026-01-10T00:00:00Z".parse().unwrap();
    assert_eq!(facts.after_share(0.5, Some(made)), due, "dated back by eight days");
    let made = "1970-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(facts.after_share(0.0, Some(made)), facts.not_before);
}

#[test]
fn what_is_cut_short_is_no_certificate_and_no_panic() {
    let whole = made(2020, 2021, Some("n1"));
    for length in 0..whole.len() {
        assert_eq!(CertificateFacts::of_der(&whole[..length]), None, "{length} bytes");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), at in 0usize..400, byte: u8) {
        let _ = CertificateFacts::of_der(&bytes);
        let mut whole = made(2020, 2021, Some("n1"));
        if let Some(place) = whole.get_mut(at) {
            *place = byte;
        }
        let _ = CertificateFacts::of_der(&whole);
        bytes.insert(0, SEQUENCE);
        let _ = CertificateFacts::of_der(&bytes);
    }
}
