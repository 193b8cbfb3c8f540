use std::sync::Arc;

use rustls::{InconsistentKeys, InvalidMessage, OtherError};

use super::*;

/// As a client puts its layers around what the connection says.
#[derive(Debug, thiserror::Error)]
#[error("client error (Connect)")]
struct Client(#[source] io::Error);

fn of_connection(error: io::Error) -> String {
    trouble(&Client(error))
}

fn of_tls(error: TlsError) -> String {
    of_connection(io::Error::new(ErrorKind::InvalidData, error))
}

#[test]
fn each_failure_of_a_connection_is_told_with_the_next_step_and_in_no_librarys_words() {
    let certificate = |error| of_tls(TlsError::InvalidCertificate(error));
    let alert = |alert| of_tls(TlsError::AlertReceived(alert));
    let dns = "failed to lookup address information: Name or service not known";
    let table = [
        (
            of_connection(ErrorKind::ConnectionRefused.into()),
            "nothing listens there: check that it runs",
        ),
        (of_connection(ErrorKind::TimedOut.into()), "check the network on the way"),
        (
            of_connection(ErrorKind::NetworkUnreachable.into()),
            "no route leads there: check this node's network",
        ),
        (of_connection(ErrorKind::UnexpectedEof.into()), "it may be restarting"),
        (of_connection(io::Error::other(dns)), "check this node's DNS"),
        (
            certificate(CertificateError::UnknownIssuer),
            "copy the cluster's CA into certificate-authority",
        ),
        (certificate(CertificateError::NotValidForName), "set tls-server-name"),
        (certificate(CertificateError::Expired), "renew it, or correct this node's clock"),
        (certificate(CertificateError::NotValidYet), "correct this node's clock"),
        (certificate(CertificateError::BadEncoding), "X.509 version 3 is needed"),
        (
            alert(AlertDescription::UnknownCA),
            "it does not accept the client certificate: renew that",
        ),
        (alert(AlertDescription::HandshakeFailure), "check what listens at that address"),
        (
            of_tls(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)),
            "check the port in server",
        ),
        (
            of_tls(TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch)),
            "do not belong together",
        ),
    ];
    for (said, wanted) in table {
        assert!(said.contains(wanted), "{said}: {wanted}");
        assert!(!said.contains(['{', '[', '(', '"']) && !said.contains("error"), "{said}");
    }
}

#[test]
fn what_has_no_words_of_ours_is_told_by_the_innermost_cause_alone() {
    let odd = TlsError::Other(OtherError(Arc::new(io::Error::other("odd"))));
    assert_eq!(of_connection(io::Error::other("broken")), "broken");
    assert!(!of_tls(odd).contains("client error"));
}
