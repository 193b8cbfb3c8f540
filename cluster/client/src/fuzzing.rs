//! Properties that hold for any input from outside. Called by tests/fuzz.

use super::certificate::CertificateFacts;

/// Parses DER and PEM. Panics if a property does not hold.
pub fn certificate(bytes: &[u8]) {
    let found = [CertificateFacts::of_der(bytes), CertificateFacts::of_pem(bytes)];
    for facts in found.into_iter().flatten() {
        for share in [0.0, 0.7, 1.0] {
            let at = facts.after_share(share, None);
            let (first, last) = (facts.not_before, facts.not_after);
            assert!(at >= first.min(last) && at <= first.max(last), "{facts:?}");
        }
    }
    // Bytes after the certificate are ignored.
    if let Some(facts) = CertificateFacts::of_der(bytes) {
        assert_eq!(CertificateFacts::of_der(&[bytes, b"\0"].concat()), Some(facts));
    }
}

#[test]
fn any_credentials_keep_the_laws() {
    winddown_fuzz::short("certificates", certificate);
}
