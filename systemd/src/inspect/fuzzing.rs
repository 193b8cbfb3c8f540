//! Properties of the view of a service, for any message.

use std::collections::HashMap;
use std::time::Duration;

use zbus::{Message, OwnedVariant};

use super::views;

pub(crate) fn laws(message: &Message) {
    let body = message.body();
    let Ok(properties) = body.deserialize::<HashMap<String, OwnedVariant>>() else { return };
    let seen = views::service(&properties, &properties);
    assert_ne!(seen.watchdog, Duration::MAX, "no watchdog is zero");
    let listed = views::strings(&properties, "After");
    assert_eq!(listed, seen.after);
}
