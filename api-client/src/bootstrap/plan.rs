//! When a certificate is asked for, and with what.

use std::time::Duration;

use jiff::Timestamp;

use crate::CertificateFacts;

/// The wall clock can be set and a machine can sleep, so it is looked at now and then.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BootstrapStep {
    /// Ask for a certificate now.
    Ask(With),
    /// Look again after this.
    Wait(Duration),
}

/// The credentials a certificate is asked for with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    Bootstrap,
    Own,
}

/// `share` of the lifetime is used before a certificate is renewed. `made`: when it was, if that is
/// known.
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
