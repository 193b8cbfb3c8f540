#![expect(clippy::disallowed_methods, reason = "serves a socket of its own")]

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;
use zbus::OwnedObjectPath;
use zbus::connection::Builder;
use zbus::{Guid, fdo, interface};

use super::error::InspectError;
use super::*;
use crate::stand_in::{Behaviour, StandIn};

const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn logind_tells_its_delay_and_who_holds_a_lock() {
    let logind = StandIn::new(Duration::from_secs(30));
    let mut config = crate::InhibitorConfig::new(Duration::from_secs(30));
    config.bus = logind.peer();
    let holder = crate::LogindInhibitor::start(config);
    logind.until_locks(|locks| !locks.is_empty()).await;
    let inspector = Inspector::connect(&logind.peer(), TIMEOUT).await.unwrap();
    let seen = inspector.login().await.unwrap();
    assert_eq!(seen.delay, Duration::from_secs(30));
    assert!(!seen.preparing);
    let ours = seen.locks.iter().find(|lock| lock.who == "winddown").expect("it is listed");
    assert!(ours.delays_shutdown(), "{ours:?}");
    drop(holder);
}

#[tokio::test]
async fn a_logind_that_refuses_or_hangs_is_told_apart() {
    let logind = StandIn::new(Duration::from_secs(5));
    logind.set_behaviour("ListInhibitors", Behaviour::Refuse);
    let inspector = Inspector::connect(&logind.peer(), TIMEOUT).await.unwrap();
    let error = inspector.login().await.unwrap_err();
    assert!(matches!(error, InspectError::Failed { .. }), "{error:?}");
    logind.set_behaviour("ListInhibitors", Behaviour::Hang);
    let hasty = Inspector { timeout: Duration::from_millis(20), ..inspector };
    let error = hasty.login().await.unwrap_err();
    assert!(matches!(error, InspectError::Silent { .. }), "{error:?}");
    assert_eq!(error.to_string(), "logind did not answer within 20ms");
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_accepts_and_says_nothing_is_silent() {
    let held = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = Arc::clone(&held);
    let bus = Bus::Peer(Arc::new(move || {
        let (ours, theirs) = UnixStream::pair()?;
        keep.lock().map_err(|_| io::Error::other("poisoned"))?.push(theirs);
        Ok(ours)
    }));
    let error = Inspector::connect(&bus, Duration::from_secs(3)).await.unwrap_err();
    assert!(matches!(error, InspectError::Silent { .. }), "{error:?}");
}

#[tokio::test]
async fn a_bus_that_is_not_there_is_absent() {
    let bus = Bus::Address("unix:path=/nonexistent/bus".to_owned());
    let error = Inspector::connect(&bus, TIMEOUT).await.unwrap_err();
    assert!(matches!(error, InspectError::Absent { .. }), "{error:?}");
}

#[test]
fn errors_of_the_bus_are_sorted_by_their_name() {
    let table = [
        ("org.freedesktop.DBus.Error.ServiceUnknown", "cannot reach"),
        ("org.freedesktop.DBus.Error.Spawn.ChildExited", "cannot reach"),
        ("org.freedesktop.systemd1.UnitMasked", "cannot reach"),
        ("org.freedesktop.DBus.Error.FileExists", "cannot reach"),
        ("org.freedesktop.DBus.Error.AccessDenied", "this user may not"),
        ("org.freedesktop.DBus.Error.UnknownMethod", "it answered"),
        ("com.example.Else", "it answered"),
    ];
    for (name, expected) in table {
        let message = zbus::Message::method_call("/", "X").build(&()).unwrap();
        let name = zbus::names::OwnedErrorName::try_from(name).unwrap();
        let error = zbus::Error::MethodError(name.clone(), None, message);
        let said = InspectError::of("it", error).to_string();
        assert!(said.starts_with(expected), "{name}: {said}");
    }
}

#[tokio::test]
async fn a_service_is_read_with_its_order_and_limits() {
    let inspector = Inspector::connect(&systemd(), TIMEOUT).await.unwrap();
    assert_eq!(inspector.system().await.unwrap().major(), Some(252));
    let seen = inspector.service("winddown.service").await.unwrap();
    assert_eq!(seen.load_state, "loaded");
    assert_eq!(seen.after, ["systemd-logind.service", "dbus.service"]);
    assert_eq!(seen.timeout_stop, Duration::MAX);
    assert_eq!(seen.watchdog, Duration::from_secs(30));
    assert_eq!((seen.fd_store_max, seen.fd_store), (16, 1));
    assert_eq!(seen.kill_mode, "mixed");
    assert!(seen.need_daemon_reload);
    assert_eq!(seen.restart, "", "a property of another type or none is empty");
}

#[tokio::test]
async fn what_is_stopped_after_a_unit_is_known_while_it_is_active() {
    let inspector = Inspector::connect(&systemd(), TIMEOUT).await.unwrap();
    let seen = inspector.stopped_after("winddown.target").await.unwrap();
    assert_eq!(seen, ["systemd-logind.service", "dbus.service"]);
    assert_eq!(inspector.ordered_after("winddown.target").await.unwrap(), seen);
    assert!(views::stopped_after(&std::collections::HashMap::new()).is_empty());
}

#[tokio::test]
async fn of_a_sandbox_what_is_open_and_what_is_hidden_is_seen() {
    let inspector = Inspector::connect(&systemd(), TIMEOUT).await.unwrap();
    let seen = inspector.service("winddown.service").await.unwrap().sandbox;
    let open = ["/run/winddown", "/var/lib/winddown", "/etc/systemd/logind.conf.d", "/data/own"];
    assert_eq!(seen.writable, Some(open.map(str::to_owned).into()));
    assert_eq!(seen.hidden, ["/home", "/root", "/run/user"]);
}

#[tokio::test]
async fn of_a_slice_only_limits_that_are_set_are_seen() {
    let inspector = Inspector::connect(&systemd(), TIMEOUT).await.unwrap();
    let seen = inspector.slice("winddown.slice").await.unwrap();
    assert_eq!(seen, SliceView { tasks_max: Some(100), tasks: Some(7), memory_max: None });
}

#[tokio::test]
async fn of_many_scopes_only_some_are_looked_at() {
    let inspector = Inspector::connect(&systemd(), TIMEOUT).await.unwrap();
    let (count, seen) = inspector.scopes(&["cri-containerd-*.scope"], 2).await.unwrap();
    assert_eq!(count, 500);
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].before, ["shutdown.target"]);
}

#[test]
fn a_version_is_its_leading_number() {
    for (version, expected) in
        [("252.39-1~deb12u1", Some(252)), ("v255", Some(255)), ("", None), ("main", None)]
    {
        let seen = SystemView { version: version.to_owned(), state: String::new() };
        assert_eq!(seen.major(), expected, "{version}");
    }
}

#[tokio::test]
async fn a_soft_reboot_is_told_by_its_count_where_systemd_knows_it() {
    for (count, at) in [(None, None), (Some(0), None), (Some(2), Some(90))] {
        let bus = match count {
            None => systemd(),
            Some(count) => serving(move || SoftManager(count)),
        };
        let seen = soft_rebooted_within(&bus, TIMEOUT, Duration::ZERO).await.unwrap();
        assert_eq!(seen, at.map(Duration::from_secs), "{count:?}");
    }
}

/// On the way up systemd is busy, and without its answer the notices of the system before would count.
#[tokio::test]
async fn a_soft_reboot_is_asked_for_again_while_systemd_is_silent() {
    let (timeout, patience) = (Duration::from_millis(300), Duration::from_secs(60));
    let bus = silent_at_first(2, serving(|| SoftManager(1)));
    let seen = soft_rebooted_within(&bus, timeout, patience).await.unwrap();
    assert_eq!(seen, Some(Duration::from_secs(90)));
    let hung = silent_at_first(usize::MAX, systemd());
    let error = soft_rebooted_within(&hung, timeout, Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, InspectError::Silent { .. }), "{error:?}");
    let absent = Bus::Peer(Arc::new(|| Err(io::ErrorKind::NotFound.into())));
    let begun = Instant::now();
    let error = soft_rebooted_within(&absent, timeout, patience).await.unwrap_err();
    assert!(matches!(error, InspectError::Absent { .. }), "{error:?}");
    assert!(begun.elapsed() < patience, "nothing is there that could answer");
}

/// A way to `bus` on which the first connections are accepted and hear nothing.
fn silent_at_first(connections: usize, bus: Bus) -> Bus {
    let (left, silent) = (Mutex::new(connections), Mutex::new(Vec::new()));
    Bus::Peer(Arc::new(move || {
        let mut left = left.lock().unwrap();
        let Bus::Peer(connect) = &bus else { unreachable!() };
        let Some(fewer) = left.checked_sub(1) else { return connect() };
        *left = fewer;
        let (ours, theirs) = UnixStream::pair()?;
        silent.lock().unwrap().push(theirs);
        Ok(ours)
    }))
}

/// A service manager behind a socket of its own.
fn systemd() -> Bus {
    serving(|| Manager)
}

fn serving<M: zbus::object_server::Interface>(
    manager: impl Fn() -> M + Send + Sync + 'static,
) -> Bus {
    Bus::Peer(Arc::new(move || {
        let (ours, theirs) = UnixStream::pair()?;
        let manager = manager();
        tokio::spawn(async move {
            let built = Builder::unix_stream(theirs)
                .server(Guid::generate())
                .p2p()
                .serve_at("/org/freedesktop/systemd1", manager)
                .serve_at("/unit", Unit)
                .serve_at("/unit", Service)
                .serve_at("/unit", Slice)
                .build();
            if let Ok(connection) = built.await {
                connection.closed().await;
            }
        });
        Ok(ours)
    }))
}

struct Manager;

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn load_unit(&self, name: &str) -> fdo::Result<OwnedObjectPath> {
        assert!(name.starts_with("winddown."), "{name}");
        Ok(path())
    }

    fn list_units_by_patterns(
        &self,
        states: Vec<&str>,
        patterns: Vec<&str>,
    ) -> Vec<crate::manager::Listed> {
        assert_eq!((states, patterns), (vec!["active"], vec!["cri-containerd-*.scope"]));
        let text = String::new;
        (0..500)
            .map(|number| {
                let name = format!("cri-containerd-{number}.scope");
                (name, text(), text(), text(), text(), text(), path(), 0, text(), path())
            })
            .collect()
    }

    #[zbus(property)]
    fn version(&self) -> &str {
        "252.39-1~deb12u1"
    }

    #[zbus(property)]
    fn system_state(&self) -> &str {
        "running"
    }
}

/// A service manager of systemd 254 or later, after this many soft reboots.
struct SoftManager(u32);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl SoftManager {
    #[zbus(property)]
    fn soft_reboots_count(&self) -> u32 {
        self.0
    }

    #[zbus(property)]
    fn userspace_timestamp_monotonic(&self) -> u64 {
        90_000_000
    }
}

fn path() -> OwnedObjectPath {
    OwnedObjectPath::try_from("/unit").unwrap()
}

struct Unit;

#[interface(name = "org.freedesktop.systemd1.Unit")]
impl Unit {
    #[zbus(property)]
    fn load_state(&self) -> &str {
        "loaded"
    }

    #[zbus(property)]
    fn active_state(&self) -> &str {
        "active"
    }

    #[zbus(property)]
    fn after(&self) -> Vec<&str> {
        vec!["systemd-logind.service", "dbus.service"]
    }

    #[zbus(property)]
    fn before(&self) -> Vec<&str> {
        vec!["shutdown.target"]
    }

    #[zbus(property)]
    fn need_daemon_reload(&self) -> bool {
        true
    }
}

struct Service;

#[interface(name = "org.freedesktop.systemd1.Service")]
impl Service {
    #[zbus(property, name = "TimeoutStopUSec")]
    fn timeout_stop_usec(&self) -> u64 {
        u64::MAX
    }

    #[zbus(property, name = "WatchdogUSec")]
    fn watchdog_usec(&self) -> u64 {
        30_000_000
    }

    #[zbus(property)]
    fn file_descriptor_store_max(&self) -> u32 {
        16
    }

    #[zbus(property, name = "NFileDescriptorStore")]
    fn n_file_descriptor_store(&self) -> u32 {
        1
    }

    #[zbus(property)]
    fn kill_mode(&self) -> &str {
        "mixed"
    }

    #[zbus(property)]
    fn restart(&self) -> u32 {
        7
    }

    #[zbus(property)]
    fn protect_system(&self) -> &str {
        "strict"
    }

    #[zbus(property)]
    fn protect_home(&self) -> &str {
        "yes"
    }

    #[zbus(property)]
    fn private_tmp(&self) -> bool {
        false
    }

    #[zbus(property)]
    fn runtime_directory(&self) -> Vec<&str> {
        vec!["winddown"]
    }

    #[zbus(property)]
    fn state_directory(&self) -> Vec<&str> {
        vec!["winddown"]
    }

    #[zbus(property)]
    fn read_write_paths(&self) -> Vec<&str> {
        vec!["-/etc/systemd/logind.conf.d", "/data/own"]
    }
}

struct Slice;

#[interface(name = "org.freedesktop.systemd1.Slice")]
impl Slice {
    #[zbus(property)]
    fn tasks_max(&self) -> u64 {
        100
    }

    #[zbus(property)]
    fn tasks_current(&self) -> u64 {
        7
    }

    #[zbus(property)]
    fn memory_max(&self) -> u64 {
        u64::MAX
    }
}
