//! Certificate requests (PKCS #10): just enough of DER to sign the requests of a node.

use rcgen::{PublicKeyData, SignatureAlgorithm};

use crate::access::User;

/// The user and the key that a certificate request names. The request's own signature is not checked.
pub(crate) struct CertificateRequest {
    pub(crate) user: User,
    key: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl PublicKeyData for CertificateRequest {
    fn der_bytes(&self) -> &[u8] {
        &self.key
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_ID: u8 = 0x06;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANISATION: &[u8] = &[0x55, 0x04, 0x0a];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

impl CertificateRequest {
    /// Parses a request. `None` if it is invalid, or the key is of an unknown kind.
    pub(crate) fn of_pem(pem: &str) -> Option<Self> {
        let body = pem.split("-----BEGIN CERTIFICATE REQUEST-----").nth(1)?;
        let body = body.split("-----END CERTIFICATE REQUEST-----").next()?;
        Self::of_der(&super::base64::decode(body)?)
    }

    fn of_der(der: &[u8]) -> Option<Self> {
        let mut request = Der(Der(der).take(SEQUENCE)?);
        let mut info = Der(request.take(SEQUENCE)?);
        info.take(INTEGER)?;
        let user = subject(info.take(SEQUENCE)?)?;
        let mut key_info = Der(info.take(SEQUENCE)?);
        let algorithm = algorithm(key_info.take(SEQUENCE)?)?;
        // The first byte is the number of unused bits in the last byte: none.
        let key = key_info.take(BIT_STRING)?.get(1..)?.to_vec();
        Some(Self { user, key, algorithm })
    }
}

fn subject(der: &[u8]) -> Option<User> {
    let mut user = User::new("", &[]);
    let mut names = Der(der);
    while !names.0.is_empty() {
        let mut set = Der(names.take(SET)?);
        while !set.0.is_empty() {
            let mut pair = Der(set.take(SEQUENCE)?);
            let id = pair.take(OBJECT_ID)?;
            let value = String::from_utf8_lossy(pair.take_any()?.1).into_owned();
            match id {
                COMMON_NAME => user.name = value,
                ORGANISATION => user.groups.push(value),
                _ => {}
            }
        }
    }
    Some(user)
}

fn algorithm(der: &[u8]) -> Option<&'static SignatureAlgorithm> {
    let mut parts = Der(der);
    match parts.take(OBJECT_ID)? {
        ED25519 => Some(&rcgen::PKCS_ED25519),
        RSA => Some(&rcgen::PKCS_RSA_SHA256),
        // An elliptic curve, whose identifier follows.
        _ => match parts.take(OBJECT_ID)? {
            P256 => Some(&rcgen::PKCS_ECDSA_P256_SHA256),
            P384 => Some(&rcgen::PKCS_ECDSA_P384_SHA384),
            _ => None,
        },
    }
}

/// The rest of a DER encoding.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next value, if it is of this type.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.take_any()?;
        (found == tag).then_some(content)
    }

    fn take_any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            length = 0;
            for _ in 0..first & 0x7f {
                let (&byte, after) = rest.split_first()?;
                length = length.checked_mul(256)? + usize::from(byte);
                rest = after;
            }
        }
        let content = rest.get(..length)?;
        self.0 = &rest[length..];
        Some((tag, content))
    }
}
