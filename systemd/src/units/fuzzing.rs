//! What is made of what systemd says of its units.

use zbus::Message;

use super::ServiceChange;
use super::signals::{TrustedSender, UnitSignals};

const PREFIX: &str = "winddown-pod";

/// Only the owner's words are taken, and only about units of ours.
pub(crate) fn laws(message: &Message) {
    let signals = UnitSignals::new(PREFIX, 16);
    let mut heard = signals.listen();
    let mut trusted = TrustedSender::Owner(None);
    signals.take(message, &mut trusted);
    assert!(heard.try_recv().is_err(), "while nobody owns the name nobody is believed");
    signals.take(message, &mut TrustedSender::Peer);
    while let Ok(change) = heard.try_recv() {
        match change {
            ServiceChange::Seen { unit, state } => {
                assert!(unit.starts_with(PREFIX), "{unit} is none of ours");
                assert!(state.main_pid.is_none_or(|pid| pid > 0), "{state:?}");
                let end = state.end;
                assert!(end.is_none_or(|end| end.exit_code.is_some() != end.signal.is_some()));
            }
            ServiceChange::Removed { unit } => assert!(unit.starts_with(PREFIX), "{unit}"),
            _ => {}
        }
    }
}
