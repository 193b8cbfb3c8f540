//! The inhibitor on a real message bus: a private dbus-daemon with the signal policy of the system
//! bus, which lets every client send signals.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of tests are tests too")]

mod private;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use winddown_host::service_units::ServiceUnits as _;
use winddown_shared::Inhibitor as _;
use winddown_shared::{LockState, MachineState, ShutdownKind, WayDown};
use winddown_systemd::stand_in::{Behaviour, StandIn};
use winddown_systemd::units::UnitsClient;
use winddown_systemd::{Bus, InhibitorConfig, LogindInhibitor, drop_in, shutdown_in_progress};
use zbus::Variant;

use self::private::{inhibitors_name, private_bus, read_after_the_grant, secs};

const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
const SIGNAL: &str = "PrepareForShutdown";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

#[tokio::test]
async fn only_the_owner_of_the_name_is_believed_whatever_an_impostor_sends() {
    let test = "only_the_owner_of_the_name_is_believed_whatever_an_impostor_sends";
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30));
    let _served = bus.serve(&logind).await;
    let mut node = bus.holding(&logind).await;
    let victim = inhibitors_name(&bus, &[]).await;
    let before = node.now();
    // The property would confirm any signal: here only the check of the sender protects.
    logind.set_preparing(true);

    let impostor = bus.connect().await;
    // The match rules name logind, so broadcasts of other senders do not even arrive.
    let broadcast = impostor.emit_signal(None::<&str>, PATH, INTERFACE, SIGNAL, &true);
    broadcast.await.expect("the bus takes it");
    let to = Some(victim.as_str());
    let unicast = impostor.emit_signal(to, PATH, INTERFACE, SIGNAL, &true);
    unicast.await.expect("the bus takes it");
    node.until_refused(1).await;
    let elsewhere = impostor.emit_signal(to, "/some/where", "some.Interface", SIGNAL, &true);
    elsewhere.await.expect("the bus takes it");
    node.until_refused(2).await;
    let scheduled = HashMap::from([("ScheduledShutdown", Variant::from(true))]);
    let body = (INTERFACE, scheduled, Vec::<&str>::new());
    let change = impostor.emit_signal(to, PATH, PROPERTIES, "PropertiesChanged", &body);
    change.await.expect("the bus takes it");
    node.until_refused(3).await;

    // A forged owner change does not make the impostor the owner.
    let own = impostor.unique_name().expect("a name").to_string();
    let body = ("org.freedesktop.login1", "", own.as_str());
    let path = "/org/freedesktop/DBus";
    let forged = impostor.emit_signal(to, path, "org.freedesktop.DBus", "NameOwnerChanged", &body);
    // The bus may refuse to deliver it, which is fine too.
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
    // The new owner does not know the lock: a new one is taken, and the old one is dropped.
    new.until_locks(|locks| locks.len() == 1).await;
    old.until_locks(|locks| locks.iter().all(|lock| lock.released_at.is_some())).await;
    node.until_held().await;
    read_after_the_grant(&new).await;

    new.set_preparing(true);
    old.emit(true, ShutdownKind::Unknown).await;
    let victim = inhibitors_name(&bus, &[&old_served]).await;
    let own = old_served.connection();
    let sent = own.emit_signal(Some(victim.as_str()), PATH, INTERFACE, SIGNAL, &true);
    sent.await.expect("the bus takes it");
    node.until_refused(1).await;
    assert!(!node.now().preparing);
    new.emit(true, ShutdownKind::Unknown).await;
    node.until("preparing", |s| s.preparing).await;
}

#[tokio::test]
async fn a_shutdown_that_is_called_off_without_a_signal_is_told_by_the_changed_property() {
    let test = "a_shutdown_that_is_called_off_without_a_signal_is_told_by_the_changed_property";
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30)).with_metadata().cancelling_without_a_signal();
    let _served = bus.serve(&logind).await;
    let mut node = bus.holding(&logind).await;
    // Without a shutdown the state is not polled; a change of a property triggers a read.
    let reads = || logind.calls().iter().filter(|call| *call == "PreparingForShutdown()").count();
    let before = reads();
    logind.emit_change().await;
    let read = async {
        while reads() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(secs(20), read).await.expect("the change makes the state be read");

    let down = logind.shutdown(ShutdownKind::Reboot);
    let cancel = async {
        let told = node.until("preparing", |s| s.kind == ShutdownKind::Reboot).await;
        assert_eq!((told.epoch, told.lock), (1, LockState::Held));
        logind.cancel().await;
        node.until("cancelled", |s| !s.preparing).await;
    };
    let (outcome, ()) = tokio::join!(down, cancel);
    assert!(outcome.cancelled);
    node.until_held().await;
    logind.until_locks(|locks| locks.len() == 2 && locks[0].released_at.is_some()).await;
    assert_eq!(node.inhibitor.refused_signals(), 0);
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
    let why = "Terminates the pods of this node in order before it goes down";
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
async fn a_flood_of_forged_signals_delays_neither_the_lock_nor_the_true_signal() {
    let test = "a_flood_of_forged_signals_delays_neither_the_lock_nor_the_true_signal";
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30));
    let _served = bus.serve(&logind).await;
    let impostor = bus.connect().await;
    // The bus numbers its connections, so the next client is flooded from its first moment.
    let own = impostor.unique_name().expect("a name").to_string();
    let number: u32 = own.trim_start_matches(":1.").parse().expect("a number");
    let to = [None, Some(format!(":1.{}", number + 1)), Some(format!(":1.{}", number + 2))];
    let flood = async {
        for to in to.iter().cycle().take(6000) {
            let sent = impostor.emit_signal(to.as_deref(), PATH, INTERFACE, SIGNAL, &true);
            sent.await.expect("the bus takes it");
        }
    };
    let shutdown = async {
        let mut node = bus.holding(&logind).await;
        logind.set_preparing(true);
        logind.emit(true, ShutdownKind::Unknown).await;
        let told = node.until("preparing", |s| s.preparing).await;
        assert_eq!((told.epoch, told.lock), (1, LockState::Held));
        node.inhibitor.release().await;
        node
    };
    let ((), node) = tokio::join!(flood, shutdown);
    node.until_refused_at_least(1).await;
    assert_eq!(logind.held(), 0);
}

#[tokio::test]
async fn a_systemd_that_refuses_the_subscription_after_its_restart_is_asked_again() {
    let test = "a_systemd_that_refuses_the_subscription_after_its_restart_is_asked_again";
    let Some(bus) = private_bus(test).await else { return };
    let systemd = StandIn::new(secs(30));
    let served = bus.serve(&systemd).await;
    let units = UnitsClient::start(Bus::Address(bus.address()), "winddown-pod", secs(2));
    let mut changes = units.changes();
    let mut missed = async || {
        let change = tokio::time::timeout(secs(20), changes.recv()).await.expect("in time");
        change.expect("the client lives");
    };
    let subscribed = async |times: usize| {
        let calls = || systemd.calls().iter().filter(|call| *call == "Subscribe()").count();
        let asked = async {
            while calls() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(secs(20), asked).await.expect("it subscribes");
    };
    missed().await;
    systemd.set_behaviour("Subscribe", Behaviour::Refuse);
    served.leave().await;
    let _served = bus.serve(&systemd).await;
    subscribed(2).await;
    systemd.set_behaviour("Subscribe", Behaviour::Answer);
    subscribed(3).await;
    missed().await;
    assert!(units.is_connected());
}

#[tokio::test]
async fn the_system_bus_is_the_one_that_the_environment_names() {
    let test = "the_system_bus_is_the_one_that_the_environment_names";
    // The environment belongs to a process, so run this binary again with another one.
    if let Ok(root) = std::env::var("WINDDOWN_TEST_ROOT") {
        return look_at_the_system_bus(Path::new(&root)).await;
    }
    let Some(bus) = private_bus(test).await else { return };
    let logind = StandIn::new(secs(30));
    logind.set_stopping(true);
    let _served = bus.serve(&logind).await;
    let looking = tokio::process::Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", test, "--nocapture"])
        .env("DBUS_SYSTEM_BUS_ADDRESS", bus.address())
        .env("WINDDOWN_TEST_ROOT", bus.root())
        .kill_on_drop(true)
        .output();
    let output = looking.await.expect("this binary");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    logind.until_locks(|locks| locks.iter().all(|lock| lock.released_at.is_some())).await;
    assert_eq!(logind.locks().len(), 1);
    assert_ne!(logind.locks()[0].pid, std::process::id());
}

async fn look_at_the_system_bus(root: &Path) {
    let mut config = InhibitorConfig::new(secs(30));
    config.root = Some(root.to_owned());
    let inhibitor = LogindInhibitor::start(config);
    let mut state = inhibitor.state();
    let held = state.wait_for(|s| s.lock == LockState::Held);
    tokio::time::timeout(secs(20), held).await.expect("in time").expect("the inhibitor lives");
    let way = shutdown_in_progress(secs(5)).await.expect("systemd answers");
    assert_eq!(way, Some(WayDown::default()));
    assert_eq!(inhibitor.machine().await, MachineState::GoingDown(WayDown::default()));
}
