//! A private dbus-daemon, without a login manager: a stand-in may take its place.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A bus on which every process of this user may own and call what it likes. Dropping it ends the daemon.
pub(crate) struct PrivateBus {
    directory: tempfile::TempDir,
    _daemon: Child,
}

const CONFIG: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=@SOCKET@</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/>
    <allow send_destination="*"/><allow send_type="signal"/>
    <allow receive_type="method_call"/><allow receive_type="method_return"/>
    <allow receive_type="error"/><allow receive_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
  </policy>
</busconfig>
"#;

/// Whether the daemon is installed.
pub(crate) fn is_there() -> bool {
    let version = std::process::Command::new("dbus-daemon").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

impl PrivateBus {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("bus.conf");
        let socket = directory.path().join("bus").display().to_string();
        std::fs::write(&config, CONFIG.replace("@SOCKET@", &socket)).unwrap();
        let mut daemon = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // It prints its address once it listens.
        let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
        assert!(lines.next_line().await.unwrap().is_some(), "dbus-daemon exited");
        Self { directory, _daemon: daemon }
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.directory.path().join("bus").display())
    }
}
