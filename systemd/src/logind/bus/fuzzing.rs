//! Properties of the verification of senders, for any message.

use tokio::time::Instant;
use zbus::Message;
use zbus::names::{OwnedUniqueName, UniqueName};

use super::signal_verification::{MessageVerdict, SignalVerifier};
use crate::logind::session::LogindEvent;

const LOGIND: &str = ":1.7";

/// A signal is trusted only if it comes from the owner of logind's name, and a change of owner only if the bus itself
/// reports it.
pub(crate) fn laws(message: &Message) {
    let at = Instant::now();
    let header = message.header();
    let sender = header.sender().map(|sender| sender.as_str());
    let owner = UniqueName::try_from(LOGIND).ok().map(OwnedUniqueName::from);
    let owners = [owner, None];
    for owner in owners {
        let mut judge = SignalVerifier::new(true);
        judge.owner_is(owner.clone());
        match judge.judge(message, at) {
            MessageVerdict::Believed(LogindEvent::Prepare { .. }) => {
                assert!(owner.is_some() && sender == Some(LOGIND), "{sender:?} was believed");
                let path = header.path().map(|path| path.as_str());
                assert_eq!(path, Some("/org/freedesktop/login1"));
            }
            MessageVerdict::Believed(LogindEvent::Changed { .. }) => {
                assert!(owner.is_some() && sender == Some(LOGIND), "{sender:?} was believed");
            }
            MessageVerdict::Believed(_) => assert_eq!(sender, Some("org.freedesktop.DBus")),
            MessageVerdict::Refused(why) => assert!(!why.is_empty()),
            MessageVerdict::Other => {}
        }
    }
    let verdict = SignalVerifier::new(true).judge(message, at);
    let prepares = matches!(verdict, MessageVerdict::Believed(LogindEvent::Prepare { .. }));
    assert!(!prepares, "nobody is believed before the owner is known");
}
