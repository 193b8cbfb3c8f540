//! Says in words for operators why a TLS connection cannot be made or used: the libraries' own are for programmers.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError, Error as TlsError};

#[cfg(test)]
mod tests;

/// What failed between this node and the API server, and what to look at next.
pub(super) fn trouble(error: &(dyn Error + 'static)) -> String {
    let ours = refused_by_tls(error).and_then(of_tls);
    let ours = ours.or_else(|| causes(error).filter_map(<dyn Error>::downcast_ref).find_map(of_io));
    ours.map_or_else(|| causes(error).last().unwrap_or(error).to_string(), str::to_owned)
}

/// What TLS refused, if that is the cause.
pub(super) fn refused_by_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a TlsError> {
    causes(error).find_map(|error| {
        let inside = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
        error.downcast_ref().or_else(|| inside.and_then(|inside| inside.downcast_ref()))
    })
}

/// Whether a certificate of either side, and not the way between them, is the trouble.
pub(super) fn is_of_certificate(error: &(dyn Error + 'static)) -> bool {
    refused_by_tls(error).is_some_and(|error| match error {
        TlsError::InvalidCertificate(_) => true,
        TlsError::AlertReceived(alert) => is_about_certificate(*alert),
        _ => false,
    })
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
    )
}

/// The error and its causes, the innermost last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The words for what TLS refuses; `None` if it is nothing that an operator can act on.
fn of_tls(error: &TlsError) -> Option<&'static str> {
    Some(match error {
        TlsError::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is signed by another authority: copy the cluster's CA into certificate-authority"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name: correct server, or set tls-server-name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired: renew it, or correct this node's clock"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet: correct this node's clock"
            }
            CertificateError::BadEncoding => {
                "its certificate cannot be read: X.509 version 3 is needed"
            }
            _ => return None,
        },
        TlsError::AlertReceived(alert) => match alert {
            alert if is_about_certificate(*alert) => {
                "it does not accept the client certificate: renew that, or take that of this cluster"
            }
            _ => {
                "it and this agent agree on no version or cipher of TLS: check what listens at that address"
            }
        },
        TlsError::InvalidMessage(_) => "it does not speak TLS: check the port in server",
        TlsError::InconsistentKeys(_) => "key and certificate do not belong together",
        _ => return None,
    })
}

fn of_io(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::ConnectionRefused => {
            "nothing listens there: check that it runs, and server in the kubeconfig"
        }
        ErrorKind::TimedOut => "the connection timed out: check the network on the way",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            "no route leads there: check this node's network"
        }
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => "the connection was lost: it may be restarting",
        _ if error.to_string().starts_with("failed to lookup address information") => {
            "its name is not known: check this node's DNS, and server in the kubeconfig"
        }
        _ => return None,
    })
}
