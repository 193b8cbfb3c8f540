//! Holds logind's delay lock, prints what happens, and lets the node go down two seconds after a
//! shutdown begins. As a service with `Type=notify` and `FileDescriptorStoreMax=1`, its lock
//! survives a crash.
//!
//! ```text
//! cargo run -p winddown-systemd --example hold
//! systemd-inhibit --list
//! ```

use std::time::Duration;

use winddown_shared::Inhibitor as _;
use winddown_systemd::{InhibitorConfig, LogindInhibitor, Notifier};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let notifier = Notifier::from_env();
    let config = InhibitorConfig::of_service(&notifier, Duration::from_secs(30));
    println!("inherited: {}", config.inherited_lock.is_some());
    let inhibitor = LogindInhibitor::start(config);
    notifier.ready();
    let mut state = inhibitor.state();
    loop {
        let now = state.borrow_and_update().clone();
        println!("{now:?}");
        notifier.status(&format!("{:?}", now.lock));
        if now.preparing {
            tokio::time::sleep(Duration::from_secs(2)).await;
            inhibitor.release().await;
            println!("released after {:?}", now.since.map(|since| since.elapsed()));
        }
        state.changed().await?;
    }
}
