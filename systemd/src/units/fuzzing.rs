//! Properties of how systemd's signals about units are handled, for any message.

use winddown_host::service_units::UnitChange;
use zbus::Message;

use super::signals::{TrustedSender, UnitSignals};

const PREFIX: &str = "winddown-pod";

/// Only signals from the owner of the name count, and only those about units with our prefix.
pub(crate) fn laws(message: &Message) {
    let signals = UnitSignals::new(PREFIX, 16);
    let mut heard = signals.listen();
    let mut trusted = TrustedSender::Owner(None);
    signals.take(message, &mut trusted);
    assert!(heard.try_recv().is_err(), "while nobody owns the name nobody is believed");
    signals.take(message, &mut TrustedSender::Peer);
    while let Ok(change) = heard.try_recv() {
        match change {
            UnitChange::Seen { unit, view } => {
                assert!(unit.starts_with(PREFIX), "{unit} is none of ours");
                assert!(view.main_pid.is_none_or(|pid| pid > 0), "{view:?}");
            }
            UnitChange::Vanished { unit } => assert!(unit.starts_with(PREFIX), "{unit}"),
            _ => {}
        }
    }
}
