//! The inhibitor on a real message bus: a dbus-daemon of the test's own, with the system bus'
//! policy on signals, which lets everyone send them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use winddown_shared::{Inhibitor as _, InhibitorState, LockState, ShutdownKind};
use winddown_systemd::stand_in::{OnBus, StandIn};
use winddown_systemd::{Bus, InhibitorConfig, LogindInhibitor, drop_in};
use zbus::Connection;
use zbus::connection::Builder;

/// Longer than anything here takes; only a failure waits for it.
const LIMIT: Duration = Duration::from_secs(20);
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
const SIGNAL: &str = "PrepareForShutdown";

/// As /usr/share/dbus-1/system.conf has it, without its services, and with the two names free.
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

/// A bus, a directory for everything, and the daemon while it runs.
struct PrivateBus {
    directory: tempfile::TempDir,
    daemon: Option<Child>,
}

/// `None` when the daemon is not installed.
async fn private_bus(test: &str) -> Option<PrivateBus> {
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
    fn socket(&self) -> PathBuf {
        self.directory.path().join("bus")
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("bus.conf")
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    /// What stands for `/` in the test.
    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    async fn run(&mut self) -> io::Result<()> {
        let mut daemon = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", self.config().display()))
            .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        // The address is printed when it listens.
        let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.expect("it starts")?;
        assert!(line.is_some(), "dbus-daemon ended at once");
        self.daemon = Some(daemon);
        Ok(())
    }

    async fn kill(&mut self) {
        self.daemon.take().expect("it runs").kill().await.expect("it dies");
    }

    async fn serve(&self, logind: &StandIn) -> OnBus {
        logind.serve_on(&self.address()).await.expect("the names are free")
    }

    async fn connect(&self) -> Connection {
        Builder::address(self.address().as_str()).build().await.expect("a connection")
    }

    fn start(&self, wanted: Duration) -> Node {
        let mut config = InhibitorConfig::new(wanted);
        config.bus = Bus::Address(self.address());
        config.root = self.root();
        config.method_timeout = Duration::from_secs(2);
        // Only what is heard counts here.
        config.recheck = Duration::from_secs(3600);
        let inhibitor = LogindInhibitor::start(config);
        let state = inhibitor.state();
        Node { inhibitor, state }
    }

    /// With a lock that logind lists, and nothing left to ask.
    async fn holding(&self, logind: &StandIn) -> Node {
        let mut node = self.start(logind.delay());
        node.until_held().await;
        let reads =
            || logind.calls().iter().filter(|call| *call == "PreparingForShutdown()").count();
        let read_again = async {
            while reads() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, read_again).await.expect("the read after the grant");
        node
    }
}

struct Node {
    inhibitor: LogindInhibitor,
    state: watch::Receiver<InhibitorState>,
}

impl Node {
    async fn until(
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

    async fn until_held(&mut self) -> InhibitorState {
        self.until("held", |s| s.lock == LockState::Held).await
    }

    async fn until_refused(&self, count: u64) {
        let counted = async {
            while self.inhibitor.refused_signals() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let refused = tokio::time::timeout(LIMIT, counted).await;
        assert!(refused.is_ok(), "{} refused", self.inhibitor.refused_signals());
        assert_eq!(self.inhibitor.refused_signals(), count);
    }

    fn now(&self) -> InhibitorState {
        self.state.borrow().clone()
    }
}

/// The unique name of the inhibitor's connection: the one that took the lock.
async fn inhibitors_name(bus: &PrivateBus) -> String {
    let asker = bus.connect().await;
    let driver = zbus::fdo::DBusProxy::new(&asker).await.expect("the bus");
    let own = asker.unique_name().expect("a name").to_string();
    let login1 = zbus::names::BusName::try_from("org.freedesktop.login1").expect("a name");
    let owner = driver.get_name_owner(login1).await.expect("an owner").to_string();
    let names = driver.list_names().await.expect("names");
    let mut others = names
        .into_iter()
        .map(|name| name.to_string())
        .filter(|name| name.starts_with(':') && *name != own && *name != owner);
    let found = others.next().expect("the inhibitor is connected");
    assert_eq!(others.next(), None, "and nobody else");
    found
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn only_the_owner_of_the_name_is_believed_whatever_an_impostor_sends() {
    let test = "only_the_owner_of_the_name_is_believed_whatever_an_impostor_sends";
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30));
    let _served = bus.serve(&logind).await;
    let mut node = bus.holding(&logind).await;
    let victim = inhibitors_name(&bus).await;
    let before = node.now();
    // The property would confirm whatever is believed: only the sender's identity protects here.
    logind.set_preparing(true);

    let impostor = bus.connect().await;
    let broadcast = impostor.emit_signal(None::<&str>, PATH, INTERFACE, SIGNAL, &true);
    broadcast.await.expect("the bus takes it");
    node.until_refused(1).await;
    let to = Some(victim.as_str());
    let unicast = impostor.emit_signal(to, PATH, INTERFACE, SIGNAL, &true);
    unicast.await.expect("the bus takes it");
    node.until_refused(2).await;
    let elsewhere = impostor.emit_signal(to, "/some/where", "some.Interface", SIGNAL, &true);
    elsewhere.await.expect("the bus takes it");
    node.until_refused(3).await;

    // A forged owner change does not make the impostor the owner.
    let own = impostor.unique_name().expect("a name").to_string();
    let body = ("org.freedesktop.login1", "", own.as_str());
    let path = "/org/freedesktop/DBus";
    let forged = impostor.emit_signal(to, path, "org.freedesktop.DBus", "NameOwnerChanged", &body);
    // The bus may refuse to carry it; that is as good.
    let _ = forged.await;
    let again = impostor.emit_signal(to, PATH, INTERFACE, SIGNAL, &true);
    again.await.expect("the bus takes it");
    node.until_refused(4).await;

    assert_eq!(node.now(), before);
    assert_eq!(logind.held(), 1);
    logind.emit(true, ShutdownKind::Unknown).await;
    node.until("preparing", |s| s.preparing).await;
}

#[tokio::test]
async fn malformed_signals_even_from_the_owner_of_the_name_harm_nothing() {
    let test = "malformed_signals_even_from_the_owner_of_the_name_harm_nothing";
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30));
    let served = bus.serve(&logind).await;
    let mut node = bus.holding(&logind).await;
    let before = node.now();
    logind.set_preparing(true);
    let owner = served.connection();
    let metadata = "PrepareForShutdownWithMetadata";
    let sends = [
        owner.emit_signal(None::<&str>, PATH, INTERFACE, SIGNAL, &()).await,
        owner.emit_signal(None::<&str>, PATH, INTERFACE, SIGNAL, &"true").await,
        owner.emit_signal(None::<&str>, PATH, INTERFACE, SIGNAL, &(true, 1u8)).await,
        owner.emit_signal(None::<&str>, PATH, INTERFACE, SIGNAL, &vec![true]).await,
        owner.emit_signal(None::<&str>, PATH, INTERFACE, metadata, &true).await,
        owner.emit_signal(None::<&str>, PATH, INTERFACE, metadata, &(true, "type")).await,
    ];
    assert!(sends.iter().all(Result::is_ok));
    node.until_refused(6).await;
    assert_eq!(node.now(), before);
    logind.emit(true, ShutdownKind::Unknown).await;
    node.until("preparing", |s| s.preparing).await;
}

#[tokio::test]
async fn when_the_name_changes_hands_the_new_owner_is_believed_and_the_old_one_is_not() {
    let test = "when_the_name_changes_hands_the_new_owner_is_believed_and_the_old_one_is_not";
    let Some(bus) = private_bus(test).await else { return };
    let (old, new) = (StandIn::new(secs(30)), StandIn::new(secs(30)));
    let old_served = bus.serve(&old).await;
    let mut node = bus.holding(&old).await;
    old_served.release_names().await.expect("it lets go");
    let _new_served = bus.serve(&new).await;
    // It knows nothing of the lock: one is taken there, and the old one is dropped.
    new.until_locks(|locks| locks.len() == 1).await;
    old.until_locks(|locks| locks.iter().all(|lock| lock.released_at.is_some())).await;
    node.until_held().await;

    new.set_preparing(true);
    old.emit(true, ShutdownKind::Unknown).await;
    node.until_refused(1).await;
    assert!(!node.now().preparing);
    new.emit(true, ShutdownKind::Unknown).await;
    node.until("preparing", |s| s.preparing).await;
}

#[tokio::test]
async fn a_restart_of_logind_keeps_the_lock_and_the_shutdown_signals_are_heard_after_it() {
    let test = "a_restart_of_logind_keeps_the_lock_and_the_shutdown_signals_are_heard_after_it";
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30));
    let served = bus.serve(&logind).await;
    let mut node = bus.holding(&logind).await;
    served.leave().await;
    node.until("told", |s| s.lock != LockState::Held).await;
    let _served = bus.serve(&logind).await;
    node.until_held().await;
    assert_eq!(logind.locks().len(), 1, "the same lock");
    let down = logind.shutdown(ShutdownKind::PowerOff);
    let release = async {
        node.until("preparing", |s| s.preparing).await;
        node.inhibitor.release().await;
    };
    let (outcome, ()) = tokio::join!(down, release);
    assert_eq!((outcome.released.len(), outcome.late.len()), (1, 0));
}

#[tokio::test]
async fn a_bus_that_is_killed_and_started_again_is_survived_with_the_lock_in_hand() {
    let test = "a_bus_that_is_killed_and_started_again_is_survived_with_the_lock_in_hand";
    let Some(mut bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30));
    let served = bus.serve(&logind).await;
    let mut node = bus.holding(&logind).await;
    bus.kill().await;
    node.until("told", |s| s.lock != LockState::Held).await;
    assert_eq!(logind.held(), 1, "the lock is not the connection");
    drop(served);
    // What happens meanwhile is found out afterwards, although no signal tells.
    logind.set_preparing(true);
    bus.run().await.expect("it starts again");
    let _served = bus.serve(&logind).await;
    let state = node.until("preparing", |s| s.preparing && s.lock == LockState::Held).await;
    assert_eq!((state.epoch, logind.locks().len()), (1, 1));

    bus.kill().await;
    node.until("told", |s| s.lock != LockState::Held).await;
    logind.set_preparing(false);
    bus.run().await.expect("it starts again");
    let _served = bus.serve(&logind).await;
    node.until("called off", |s| !s.preparing).await;
    node.until_held().await;
    logind.until_locks(|locks| locks.len() == 2 && locks[0].released_at.is_some()).await;
}

#[tokio::test]
async fn an_agent_that_is_earlier_than_the_bus_and_logind_finds_both() {
    let test = "an_agent_that_is_earlier_than_the_bus_and_logind_finds_both";
    let Some(mut bus) = private_bus(test).await else { return };
    bus.kill().await;
    std::fs::remove_file(bus.socket()).expect("a node without a bus");
    let mut node = bus.start(secs(30));
    node.until("absent", |s| matches!(s.lock, LockState::Absent { .. })).await;
    bus.run().await.expect("it starts");
    node.until("without logind", |s| match &s.lock {
        LockState::Waiting { why } | LockState::Absent { why } => {
            why.contains("org.freedesktop.login1")
        }
        _ => false,
    })
    .await;
    let logind = StandIn::new(secs(30));
    let _served = bus.serve(&logind).await;
    node.until_held().await;
}

#[tokio::test]
async fn the_calls_have_the_arguments_that_logind_and_systemd_expect() {
    let test = "the_calls_have_the_arguments_that_logind_and_systemd_expect";
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(5)).reloading_from(bus.root(), Duration::from_millis(200));
    let _served = bus.serve(&logind).await;
    let mut node = bus.start(secs(30));
    node.until("raised", |s| s.delay == Some(secs(30))).await;
    let mut calls = logind.calls();
    calls.dedup();
    let why = "Ends the pods of this node in order before it goes down";
    let expected = [
        "PreparingForShutdown()",
        "InhibitDelayMaxUSec()",
        &format!(r#"Inhibit("shutdown", "winddown", "{why}", "delay")"#),
        "ListInhibitors()",
        "PreparingForShutdown()",
        r#"KillUnit("systemd-logind.service", "all", 1)"#,
        "InhibitDelayMaxUSec()",
    ];
    assert_eq!(calls, expected);
    let lock = &logind.locks()[0];
    assert_eq!((lock.pid, lock.who.as_str()), (std::process::id(), "winddown"));
    check_drop_in(&bus.root());
}

fn check_drop_in(root: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let file = root.join("etc/systemd/logind.conf.d/zz-winddown.conf");
    let text = std::fs::read_to_string(&file).expect("the drop-in");
    assert!(text.ends_with("\n[Login]\nInhibitDelayMaxSec=30\n"), "{text}");
    assert!(!text.contains('@'), "{text}");
    let mode = std::fs::metadata(&file).expect("its mode").permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);
    let directory = file.parent().expect("a directory");
    assert_eq!(std::fs::read_dir(directory).expect("a list").count(), 1, "no draft is left");
    assert_eq!(drop_in::find(root).expect("it is found").value, secs(30));
}

#[tokio::test]
async fn a_foreign_drop_in_that_sorts_later_wins_and_is_named() {
    let test = "a_foreign_drop_in_that_sorts_later_wins_and_is_named";
    let Some(bus) = private_bus(test).await else { return };
    let foreign = bus.root().join("run/systemd/logind.conf.d");
    std::fs::create_dir_all(&foreign).expect("a directory");
    std::fs::write(foreign.join("zzz-site.conf"), "[Login]\nInhibitDelayMaxSec=3s\n")
        .expect("a file");
    let logind = StandIn::new(secs(3)).reloading_from(bus.root(), Duration::ZERO);
    let _served = bus.serve(&logind).await;
    let mut node = bus.start(secs(30));
    let state = node.until("told", |s| s.delay_set_by.is_some()).await;
    assert_eq!(state.delay, Some(secs(3)));
    assert_eq!(state.delay_set_by.as_deref(), Some("/run/systemd/logind.conf.d/zzz-site.conf"));
    assert_eq!(state.lock, LockState::Held);
}
