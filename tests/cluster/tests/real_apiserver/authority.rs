//! The certificates of the cluster, and what signs those of nodes.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, PublicKeyData, SignatureAlgorithm,
};

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key, in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The key that a certificate request was made with.
struct RequestedKey(Vec<u8>);

/// How the DER of a P-256 key begins: its algorithm, its curve and the length of the point.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = params("test authority", &[], Duration::from_secs(86_400));
        params.extended_key_usages.clear();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn server(&self, names: &[&str]) -> Issued {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    pub(crate) fn client(&self, user: &str, groups: &[&str], lifetime: Duration) -> Issued {
        self.sign(&params(user, groups, lifetime))
    }

    /// Signs a certificate request of a P-256 key for a node.
    pub(crate) fn node(&self, request: &[u8], node: &str, lifetime: Duration) -> String {
        let der = pem::parse(request).unwrap().into_contents();
        let at = der.windows(P256.len()).position(|window| window == P256).unwrap() + P256.len();
        let key = RequestedKey(der[at..at + 65].to_vec());
        let params = params(&format!("system:node:{node}"), &["system:nodes"], lifetime);
        params.signed_by(&key, &self.issuer).unwrap().pem()
    }

    fn sign(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn params(name: &str, groups: &[&str], lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let now = u64::try_from(super::server::wall().now().as_second()).unwrap();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now - 60);
    params.not_after = epoch + Duration::from_secs(now) + lifetime;
    params
}
