//! Decides when a certificate is requested, and with which credentials.

use std::time::Duration;

use jiff::Timestamp;

use crate::CertificateFacts;

/// The longest wait between two checks, because the wall clock can be set and the machine can sleep.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BootstrapStep {
    /// Request a certificate now.
    Ask(With),
    /// Check again after this duration.
    Wait(Duration),
}

/// The credentials with which a certificate is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    Bootstrap,
    Own,
}

/// Decides what to do next. A certificate is renewed after `share` of its lifetime. `made` is when
/// it was issued, if known.
pub(super) fn next(
    facts: Option<&CertificateFacts>,
    node: &str,
    now: Timestamp,
    share: f64,
    made: Option<Timestamp>,
) -> BootstrapStep {
    let ours = |facts: &&CertificateFacts| {
        facts.common_name.as_deref().and_then(|name| name.strip_prefix("system:node:"))
            == Some(node)
    };
    let Some(facts) = facts.filter(ours).filter(|facts| now < facts.not_after) else {
        return BootstrapStep::Ask(With::Bootstrap);
    };
    let due = facts.after_share(share, made);
    match Duration::try_from(due.duration_since(now)) {
        Ok(wait) if !wait.is_zero() => BootstrapStep::Wait(wait.min(LONGEST_SLEEP)),
        _ => BootstrapStep::Ask(With::Own),
    }
}
