//! The certificate authority of the server, and the certificates that it signs.

pub(crate) mod base64;
pub(crate) mod csr;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::access::User;
use crate::clock::{self, Clock};

/// Why a certificate or a TLS configuration could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A certificate could not be created.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up with the certificate.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The verifier of client certificates could not be built.
    #[error("cannot set up the check of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The validity of certificates that must not expire in a test. Half of it lies before the test.
const AGES: Duration = Duration::from_secs(20 * 365 * 86_400);

/// A certificate authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// Its private key (PKCS #8) in PEM.
    pub key_pem: String,
    pub(crate) der: Vec<u8>,
}

impl Identity {
    /// Certificate and key in one text, as files often contain them.
    #[must_use]
    pub fn pem(&self) -> String {
        format!("{}{}", self.certificate_pem, self.key_pem)
    }
}

impl Authority {
    pub(crate) fn new(now: Timestamp) -> Result<Self, PkiError> {
        let mut params = params("winddown test authority", &[], long_before(now), AGES)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Creates a client certificate: the user is its common name, the groups are its organizations.
    pub(crate) fn client(
        &self,
        user: &User,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = self.client_params(user, now, lifetime)?.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            der: certificate.der().to_vec(),
        })
    }

    /// The same, valid whatever a test does to the clock.
    pub(crate) fn lasting_client(&self, user: &User, now: Timestamp) -> Result<Identity, PkiError> {
        self.client(user, long_before(now), AGES)
    }

    /// Creates a client certificate for a key of the client, as PEM and DER.
    pub(crate) fn client_for(
        &self,
        key: &impl PublicKeyData,
        user: &User,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<(String, Vec<u8>), PkiError> {
        let certificate = self.client_params(user, now, lifetime)?.signed_by(key, &self.issuer)?;
        Ok((certificate.pem(), certificate.der().to_vec()))
    }

    /// The TLS configuration of a server with these names, which verifies client certificates if they are presented.
    pub(crate) fn server(
        &self,
        names: &[String],
        clock: &Clock,
        protocols: &[&str],
    ) -> Result<Arc<ServerConfig>, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = params("kube-apiserver", names, long_before(clock.now()), AGES)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let mut config = ServerConfig::builder_with_details(provider, Arc::new(clock.clone()))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )?;
        // A resumed session would carry a certificate that may have expired since.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }

    fn client_params(
        &self,
        user: &User,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<CertificateParams, PkiError> {
        let mut params = params(&user.name, &[], now, lifetime)?;
        for group in &user.groups {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params)
    }
}

fn long_before(now: Timestamp) -> Timestamp {
    clock::moved(now, -10 * 365 * 86_400)
}

fn params(
    name: &str,
    names: &[String],
    now: Timestamp,
    lifetime: Duration,
) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let begin = u64::try_from(now.as_second()).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // Backdated a little, as is usual for machines whose clocks differ.
    params.not_before = epoch + Duration::from_secs(begin.saturating_sub(300));
    params.not_after = epoch + Duration::from_secs(begin) + lifetime;
    Ok(params)
}
