//! Who owns a name on the bus. The bus sets the sender of each message, and only the owner's are of the service.

use zbus::fdo::{self, DBusProxy};
use zbus::message::Type;
use zbus::names::{BusName, OwnedUniqueName, UniqueName};
use zbus::{MatchRule, Message};

const DRIVER: &str = "org.freedesktop.DBus";

/// The owner of a name; `None` if it has none.
pub(crate) type Owner = Option<OwnedUniqueName>;

/// Returns the match rule for changes of the owner.
pub(crate) fn rule(name: &'static str) -> zbus::Result<MatchRule<'static>> {
    let changes = MatchRule::builder().msg_type(Type::Signal).sender(DRIVER).interface(DRIVER);
    changes.path("/org/freedesktop/DBus").member("NameOwnerChanged").arg(0, name).build()
}

/// Queries the current owner.
pub(crate) async fn of(driver: &DBusProxy<'_>, name: &'static str) -> zbus::Result<Owner> {
    match driver.get_name_owner(BusName::try_from(name)?).await {
        Ok(owner) => Ok(Some(owner)),
        Err(fdo::Error::NameHasNoOwner(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the new owner of `name`, if the body of the message says that it has changed. Only the bus itself sends under its
/// own name; no client can own it.
pub(crate) fn change(message: &Message, name: &str) -> Option<Owner> {
    let header = message.header();
    header.sender().filter(|sender| sender.as_str() == DRIVER)?;
    let body = message.body();
    let (changed, _, new) = body.deserialize::<(&str, &str, &str)>().ok()?;
    (changed == name).then(|| UniqueName::try_from(new).ok().map(|new| new.to_owned().into()))
}
