//! A private dbus-daemon, and an inhibitor on it.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use winddown_shared::{Inhibitor as _, InhibitorState, LockState};
use winddown_systemd::stand_in::{OnBus, StandIn};
use winddown_systemd::{Bus, InhibitorConfig, LogindInhibitor};
use zbus::Connection;
use zbus::connection::Builder;

/// A timeout longer than anything here takes; only a failure reaches it.
const LIMIT: Duration = Duration::from_secs(20);

/// Like /usr/share/dbus-1/system.conf, without its services, and with the two names free.
const CONFIG: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=@SOCKET@</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
    <allow own="org.freedesktop.login1"/>
    <allow own="org.freedesktop.systemd1"/>
    <allow send_destination="org.freedesktop.login1"/>
    <allow send_destination="org.freedesktop.systemd1"/>
  </policy>
</busconfig>
"#;

/// A bus: its directory, and its daemon while it runs.
pub(crate) struct PrivateBus {
    directory: tempfile::TempDir,
    daemon: Option<Child>,
}

/// `None` when the daemon is not installed.
pub(crate) async fn private_bus(test: &str) -> Option<PrivateBus> {
    let mut bus = PrivateBus { directory: tempfile::tempdir().expect("a directory"), daemon: None };
    let config = CONFIG.replace("@SOCKET@", &bus.socket().display().to_string());
    std::fs::write(bus.config(), config).expect("the configuration");
    match bus.run().await {
        Ok(()) => Some(bus),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(test, "dbus-daemon is not installed (Debian package dbus)");
            None
        }
        Err(error) => panic!("cannot start dbus-daemon: {error}"),
    }
}

fn skip(test: &str, why: &str) {
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} may not be skipped: {why}");
    println!("SKIPPED: {test}: {why}");
}

impl PrivateBus {
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("bus")
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("bus.conf")
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    /// Returns the root directory of the configuration.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    pub(crate) async fn run(&mut self) -> io::Result<()> {
        let mut daemon = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", self.config().display()))
            .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        // The daemon prints its address once it listens.
        let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.expect("it starts")?;
        assert!(line.is_some(), "dbus-daemon ended at once");
        self.daemon = Some(daemon);
        Ok(())
    }

    pub(crate) async fn kill(&mut self) {
        self.daemon.take().expect("it runs").kill().await.expect("it dies");
    }

    pub(crate) async fn serve(&self, logind: &StandIn) -> OnBus {
        logind.serve_on(&self.address()).await.expect("the names are free")
    }

    pub(crate) async fn connect(&self) -> Connection {
        Builder::address(self.address().as_str()).build().await.expect("a connection")
    }

    pub(crate) fn start(&self, wanted: Duration) -> Node {
        let mut config = InhibitorConfig::new(wanted);
        config.bus = Bus::Address(self.address());
        config.root = Some(self.root());
        config.method_timeout = Duration::from_secs(2);
        // Only the signals count here.
        config.recheck = Duration::from_secs(3600);
        let inhibitor = LogindInhibitor::start(config);
        let state = inhibitor.state();
        Node { inhibitor, state }
    }

    /// Waits until logind lists the lock and no step is left.
    pub(crate) async fn holding(&self, logind: &StandIn) -> Node {
        let mut node = self.start(logind.delay());
        node.until_held().await;
        read_after_the_grant(logind).await;
        node
    }
}

pub(crate) struct Node {
    pub(crate) inhibitor: LogindInhibitor,
    state: watch::Receiver<InhibitorState>,
}

impl Node {
    pub(crate) async fn until(
        &mut self,
        what: &str,
        wanted: impl FnMut(&InhibitorState) -> bool,
    ) -> InhibitorState {
        let now = self.state.clone();
        match tokio::time::timeout(LIMIT, self.state.wait_for(wanted)).await {
            Ok(state) => state.expect("the inhibitor lives").clone(),
            Err(_) => panic!("never {what}; the state is {:?}", *now.borrow()),
        }
    }

    pub(crate) async fn until_held(&mut self) -> InhibitorState {
        self.until("held", |s| s.lock == LockState::Held).await
    }

    pub(crate) async fn until_refused(&self, count: u64) {
        self.until_refused_at_least(count).await;
        assert_eq!(self.inhibitor.refused_signals(), count);
    }

    pub(crate) async fn until_refused_at_least(&self, count: u64) {
        let counted = async {
            while self.inhibitor.refused_signals() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let refused = tokio::time::timeout(LIMIT, counted).await;
        assert!(refused.is_ok(), "{} refused", self.inhibitor.refused_signals());
    }

    pub(crate) fn now(&self) -> InhibitorState {
        self.state.borrow().clone()
    }
}

/// Resolves when the state was read once more after the lock was listed, and what is scheduled, which is the last step.
pub(crate) async fn read_after_the_grant(logind: &StandIn) {
    let last = ["PreparingForShutdown()", "ScheduledShutdown()"];
    let read = async {
        while !logind.calls().ends_with(&last.map(str::to_owned)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, read).await.expect("the read after the grant");
}

/// Returns the unique name of the inhibitor's connection: the one that neither owns logind's name
/// nor is one of `others`.
pub(crate) async fn inhibitors_name(bus: &PrivateBus, others: &[&OnBus]) -> String {
    let asker = bus.connect().await;
    let driver = zbus::fdo::DBusProxy::new(&asker).await.expect("the bus");
    let own = asker.unique_name().expect("a name").to_string();
    let login1 = zbus::names::BusName::try_from("org.freedesktop.login1").expect("a name");
    let owner = driver.get_name_owner(login1).await.expect("an owner").to_string();
    let names = driver.list_names().await.expect("names");
    let known = others.iter().filter_map(|other| other.connection().unique_name());
    let known: Vec<String> = known.map(ToString::to_string).chain([own, owner]).collect();
    let mut left = names
        .into_iter()
        .map(|name| name.to_string())
        .filter(|name| name.starts_with(':') && !known.contains(name));
    let found = left.next().expect("the inhibitor is connected");
    assert_eq!(left.next(), None, "and nobody else");
    found
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
