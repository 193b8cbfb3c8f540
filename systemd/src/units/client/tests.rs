#![expect(clippy::disallowed_methods, reason = "serves a socket of its own")]
#![allow(clippy::needless_pass_by_value, reason = "D-Bus passes by value")]

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use winddown_host::service_units::ServiceUnits as _;
use winddown_shared::Mutex;
use zbus::connection::Builder;
use zbus::{Guid, OwnedObjectPath, OwnedVariant, Variant, interface};

use super::UnitsClient;
use crate::bus::Bus;

/// The CPU weights of the slices that are loaded.
type Weights = Arc<Mutex<HashMap<String, u64>>>;

/// A service manager that has slices and nothing else.
struct Manager(Weights);

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum UnitTrouble {
    #[zbus(error)]
    ZBus(zbus::Error),
    UnitExists(String),
}

fn weight(properties: &[(String, OwnedVariant)]) -> u64 {
    let given = properties.iter().find(|(name, _)| name == "CPUWeight");
    match given.map(|(_, value)| &**value) {
        Some(Variant::U64(weight)) => *weight,
        other => panic!("no weight: {other:?}"),
    }
}

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn subscribe(&self) {}

    fn start_transient_unit(
        &self,
        name: String,
        _mode: String,
        properties: Vec<(String, OwnedVariant)>,
        _auxiliary: Vec<(String, Vec<(String, OwnedVariant)>)>,
    ) -> Result<OwnedObjectPath, UnitTrouble> {
        let mut weights = self.0.lock();
        if weights.contains_key(&name) {
            return Err(UnitTrouble::UnitExists(name));
        }
        weights.insert(name, weight(&properties));
        Ok(OwnedObjectPath::try_from("/job").unwrap())
    }

    fn set_unit_properties(
        &self,
        name: String,
        _runtime: bool,
        properties: Vec<(String, OwnedVariant)>,
    ) {
        self.0.lock().insert(name, weight(&properties));
    }
}

fn serving(weights: &Weights) -> Bus {
    let weights = Arc::clone(weights);
    Bus::Peer(Arc::new(move || {
        let (ours, theirs) = UnixStream::pair()?;
        let manager = Manager(Arc::clone(&weights));
        tokio::spawn(async move {
            let built = Builder::unix_stream(theirs)
                .server(Guid::generate())
                .p2p()
                .serve_at("/org/freedesktop/systemd1", manager)
                .build();
            if let Ok(connection) = built.await {
                connection.closed().await;
            }
        });
        Ok(ours)
    }))
}

#[tokio::test]
async fn the_slice_of_a_pod_that_comes_back_with_another_spec_gets_its_weight() {
    let weights = Weights::default();
    let client = UnitsClient::start(serving(&weights), "winddown-pod", Duration::from_secs(20));
    for weight in [20, 39] {
        client.make_slice("winddown-podu.slice", "Pod default/web", weight).await.unwrap();
        assert_eq!(weights.lock().get("winddown-podu.slice"), Some(&weight));
    }
}
