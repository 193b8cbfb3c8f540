//! Everything needed to reach the API server, read from files at one moment.

use http::{HeaderValue, Uri};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::client::ConfigExt;

use super::certificate::CertificateFacts;
use super::error::CredentialsError;
use super::files::Files;
use super::peer;

/// What a source of credentials supplied. The key has been checked: it belongs to the certificate.
pub(super) struct Material {
    /// The configuration from which connections are made.
    pub(super) config: kube::Config,
    pub(super) authorization: Option<HeaderValue>,
    /// Facts about the client certificate.
    pub(super) certificate: Option<CertificateFacts>,
    /// The files that all this was read from.
    pub(super) files: Files,
    /// The command that supplied the credentials, as messages name it.
    pub(super) command: Option<String>,
    /// When that command has to be run again.
    pub(super) renew_at: Option<Timestamp>,
}

/// A text that was read, and where it was found.
pub(super) struct FoundText {
    pub(super) place: String,
    pub(super) bytes: Vec<u8>,
}

/// Builds a [`Material`], and checks each part as it is added.
pub(super) struct Assembly {
    config: kube::Config,
    authorization: Option<HeaderValue>,
    certificate: Option<CertificateFacts>,
}

// === impl Assembly ===

impl Assembly {
    /// `place` says where the address was found.
    pub(super) fn new(place: &str, server: &str) -> Result<Self, CredentialsError> {
        let uri: Uri = server.parse().map_err(|_: http::uri::InvalidUri| {
            let problem = format!("{server:?} is not a URL: write https://<host>:<port>");
            CredentialsError::contents(place, problem)
        })?;
        if uri.scheme_str() != Some("https") || uri.authority().is_none() {
            let problem = format!(
                "{server:?} is not an https URL: credentials are sent over TLS only, so write \
                 https://<host>:<port>"
            );
            return Err(CredentialsError::contents(place, problem));
        }
        Ok(Self { config: kube::Config::new(uri), authorization: None, certificate: None })
    }

    /// The namespace of the context.
    pub(super) fn default_namespace(&self) -> &str {
        &self.config.default_namespace
    }

    pub(super) fn namespace(&mut self, namespace: Option<String>) {
        if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
            self.config.default_namespace = namespace;
        }
    }

    pub(super) fn server_name(&mut self, name: Option<String>) {
        self.config.tls_server_name = name.filter(|name| !name.is_empty());
    }

    pub(super) fn accept_any_server(&mut self) {
        self.config.accept_invalid_certs = true;
        // Otherwise this machine's own are loaded, which it may not have.
        self.config.root_cert = Some(Vec::new());
    }

    /// Whether the server's certificate is verified.
    pub(super) fn verifies_server(&self) -> bool {
        !self.config.accept_invalid_certs
    }

    /// Sets the authorities that the server's certificate has to come from.
    pub(super) fn authority(&mut self, found: &FoundText) -> Result<(), CredentialsError> {
        let sections = pem::parse_many(&found.bytes).map_err(|_| {
            let problem = "this is not complete PEM: put the cluster's CA there, as PEM";
            CredentialsError::contents(&found.place, problem)
        })?;
        let certificates: Vec<_> = sections
            .into_iter()
            .filter(|section| section.tag() == "CERTIFICATE")
            .map(pem::Pem::into_contents)
            .collect();
        if certificates.is_empty() {
            let problem = "there is no certificate in it: put the cluster's CA there, as PEM";
            return Err(CredentialsError::contents(&found.place, problem));
        }
        self.config.root_cert = Some(certificates);
        // Built once here, so that the error for an unusable certificate names its place.
        self.config.rustls_client_config().map(drop).map_err(|_| {
            let problem = "a certificate in it cannot be read: put the cluster's CA there, as X.509 version 3";
            CredentialsError::contents(&found.place, problem)
        })
    }

    pub(super) fn token(&mut self, found: &FoundText) -> Result<(), CredentialsError> {
        let text = found.bytes.trim_ascii();
        if text.is_empty() {
            return Err(CredentialsError::contents(&found.place, "the token is empty"));
        }
        let bearer = [b"Bearer ", text].concat();
        let mut value = HeaderValue::from_bytes(&bearer).map_err(|_| {
            let problem = "the token has to be one line of text, without control characters";
            CredentialsError::contents(&found.place, problem)
        })?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(())
    }

    pub(super) fn identity(
        &mut self,
        chain: &FoundText,
        key: &FoundText,
    ) -> Result<(), CredentialsError> {
        let Some(facts) = CertificateFacts::of_pem(&chain.bytes) else {
            let problem = "there is no certificate in it: put the client certificate there, as PEM";
            return Err(CredentialsError::contents(&chain.place, problem));
        };
        let is_key = |section: &pem::Pem| section.tag().ends_with("PRIVATE KEY");
        let keys = pem::parse_many(&key.bytes).unwrap_or_default();
        if !keys.iter().any(is_key) {
            let problem = "there is no private key in it: put the client's key there, as PEM";
            return Err(CredentialsError::contents(&key.place, problem));
        }
        self.config.auth_info.client_certificate_data = Some(base64(chain.bytes.clone()));
        self.config.auth_info.client_key_data = Some(base64(key.bytes.clone()).into());
        // Of the pair alone: where no authority is configured, this machine may have none either.
        let mut pair = self.config.clone();
        pair.root_cert = Some(Vec::new());
        pair.rustls_client_config().map_err(|error| match peer::refused_by_tls(&error) {
            Some(rustls::Error::InvalidCertificate(_)) => {
                let problem = "the certificate cannot be read: renew it, as X.509 version 3";
                CredentialsError::contents(&chain.place, problem)
            }
            _ => {
                let problem = format!(
                    "it cannot be used with the certificate in {}: renew both together",
                    chain.place
                );
                CredentialsError::contents(&key.place, problem)
            }
        })?;
        self.certificate = Some(facts);
        Ok(())
    }

    pub(super) fn has_credentials(&self) -> bool {
        self.certificate.is_some() || self.authorization.is_some()
    }

    pub(super) fn finish(
        self,
        files: Files,
        command: Option<String>,
        renew_at: Option<Timestamp>,
    ) -> Material {
        let Self { config, authorization, certificate } = self;
        Material { config, authorization, certificate, files, command, renew_at }
    }
}

// === impl Material ===

impl Material {
    /// Whether the command that supplied the credentials has to be run again.
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.renew_at.is_some_and(|at| at <= now)
    }

    /// Where the credentials come from, for messages.
    pub(super) fn origin(&self) -> String {
        self.command.clone().unwrap_or_else(|| self.files.names())
    }
}

/// Decodes the base64 text that was found at `place`.
pub(super) fn unbase64(place: &str, text: &str) -> Result<Vec<u8>, CredentialsError> {
    // Editors often fold such values into lines.
    let text: String = text.split_ascii_whitespace().collect();
    match serde_json::from_value::<ByteString>(text.into()) {
        Ok(bytes) => Ok(bytes.0),
        Err(_) => {
            let problem = "this is not base64: write the file's contents through `base64 -w0`";
            Err(CredentialsError::contents(place, problem))
        }
    }
}

/// Encodes `bytes` as kube expects them.
pub(super) fn base64(bytes: Vec<u8>) -> String {
    match serde_json::to_value(ByteString(bytes)) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}
