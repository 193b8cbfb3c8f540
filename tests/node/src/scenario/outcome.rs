//! The outcome of a node's shutdown, according to the pods, logind, systemd and the report.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::{GROUPS, SOON, Scenario, TestResult};

/// A negligible delay, on two processors that other tests use as well. Polling where there is an event would take
/// longer; the benchmarks measure the actual delay.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The same where other programs have their part in it: systemctl, logind, the container runtime.
const SOON_AFTER: Duration = Duration::from_secs(3);

impl Scenario {
    /// Like [`Self::assert_ended_within`], with every pod asked once and a negligible delay between the groups.
    pub fn assert_ended_in_order(&self) -> TestResult<(u64, u64)> {
        for (name, log) in self.logs() {
            assert_eq!(log.terms.len(), 1, "{name}: {log:?}");
        }
        self.assert_ended_within(AT_ONCE)
    }

    /// Fails unless every pod stopped by itself when asked, and every group waited for the one before it, and
    /// afterwards no longer than `gap`. Returns the times of the first request and the last exit, in
    /// nanoseconds since 1970.
    pub fn assert_ended_within(&self, gap: Duration) -> TestResult<(u64, u64)> {
        for (name, log) in self.logs() {
            assert_eq!(log.starts.len(), 1, "{name} was started again: {log:?}");
            assert_eq!(log.exits.len(), 1, "{name} did not exit by itself: {log:?}");
        }
        let mut spans = Vec::new();
        for priority in GROUPS {
            let group = self.group(priority);
            let terms = group.iter().filter_map(|log| log.terms.first().copied());
            let first = terms.clone().min().ok_or("an empty group")?;
            let spread = Duration::from_nanos(terms.max().unwrap_or(first) - first);
            assert!(spread < AT_ONCE.max(gap), "group {priority} was asked over {spread:?}");
            let exit = group.iter().flat_map(|log| log.exits.iter().copied()).max();
            spans.push((first, exit.ok_or("nobody exited")?));
        }
        for (before, after) in spans.iter().zip(&spans[1..]) {
            assert!(after.0 >= before.1, "a group began before the one before it had terminated");
            let waited = Duration::from_nanos(after.0 - before.1);
            println!("gap between groups: {waited:?}");
            assert!(waited < gap, "{waited:?} passed between two groups");
        }
        Ok((spans[0].0, spans[2].1))
    }

    /// Fails unless a power-off that was asked for at `asked` terminated all pods in order, soon and by themselves, and
    /// then released the lock soon. Boots the node again and returns the report, which must be clean.
    pub async fn assert_clean_power_off(&mut self, asked: u64) -> TestResult<Value> {
        self.node.wait_off(Duration::from_secs(40)).await?;
        let (first_term, last_exit) = self.assert_ended_in_order()?;
        let waited = Duration::from_nanos(first_term - asked);
        println!("`systemctl poweroff` to first SIGTERM: {waited:?}");
        assert!(waited < SOON_AFTER, "{waited:?} until the first SIGTERM");
        self.assert_lock_released_soon(last_exit).await?;
        self.assert_systemd_killed_nothing().await?;

        let report = self.report_after_next_boot().await?;
        assert_eq!(report["outcome"], "clean", "{report}");
        assert_eq!(report["trigger"], "loginManager");
        let groups = report["groups"].as_array().into_iter().flatten();
        let pods: Vec<_> =
            groups.map(|group| group["pods"].as_array().map_or(0, Vec::len)).collect();
        let expected = GROUPS.map(|priority| self.group(priority).len());
        assert_eq!(pods, expected, "{report}");
        Ok(report)
    }

    /// Fails unless the lock was released soon after `last_exit`, the exit of the last pod.
    pub async fn assert_lock_released_soon(&self, last_exit: u64) -> TestResult {
        let kept = self.lock_outlived(last_exit).await?;
        println!("last exit to lock released: {kept:?}");
        assert!(kept < SOON_AFTER, "the lock was held for {kept:?} for nothing");
        Ok(())
    }

    /// How long the lock was held after `last_exit`, the exit of the last pod; fails if it was released before.
    pub async fn lock_outlived(&self, last_exit: u64) -> TestResult<Duration> {
        let released = self.lock_released_at().await?;
        assert!(released >= last_exit, "the lock was released before the last pod's exit");
        Ok(Duration::from_nanos(released - last_exit))
    }

    /// When logind last continued with a shutdown, in nanoseconds since 1970.
    pub async fn lock_released_at(&self) -> TestResult<u64> {
        // logind logs "System is powering down." (rebooting, halting, rebooting with kexec) when no delay lock is left
        // or its time is over, and not before.
        let said = self.node.journal_entries(&["--unit=systemd-logind"]).await?;
        let entry = said.into_iter().rev().find(|e| e.message.starts_with("System is "));
        Ok(entry.ok_or("logind never went on with the shutdown")?.at)
    }

    /// Fails if logind stopped waiting for a lock because the time was over.
    pub async fn assert_logind_was_patient(&self) -> TestResult {
        let said = self.node.journal(&["--unit=systemd-logind"]).await?;
        assert!(!said.contains("timeout is reached"), "logind lost its patience:\n{said}");
        Ok(())
    }

    /// The report files in the state directory of a node, which may be on or off, newest last.
    pub fn reports(&self) -> TestResult<Vec<PathBuf>> {
        let reports = self.node.host_path("/var/lib/winddown/reports");
        let mut files = std::fs::read_dir(&reports)
            .map_err(|error| format!("{}: {error}", reports.display()))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()?;
        files.sort();
        Ok(files)
    }

    /// The newest of [`Self::reports`].
    pub fn newest_report(&self) -> TestResult<Value> {
        let files = self.reports()?;
        let newest = files.last().ok_or("no report was written")?;
        Ok(serde_json::from_slice(&std::fs::read(newest)?)?)
    }

    /// Boots the node again and gets the report of its last shutdown.
    pub async fn report_after_next_boot(&mut self) -> TestResult<Value> {
        self.node.start().await?;
        let ready = async || self.text(&["report"]).await.is_ok();
        self.node.wait_until("the report", SOON, ready).await?;
        Ok(serde_json::from_str(&self.text(&["report", "-o", "json"]).await?)?)
    }

    /// Fails if systemd had to kill anything, or timed out.
    pub async fn assert_systemd_killed_nothing(&self) -> TestResult {
        self.assert_systemd_killed_nothing_but(&[]).await
    }

    /// Like [`Self::assert_systemd_killed_nothing`], ignoring messages that contain one of `expected`.
    pub async fn assert_systemd_killed_nothing_but(&self, expected: &[&str]) -> TestResult {
        for entry in self.node.journal_entries(&["--boot", "_PID=1"]).await? {
            let says = |signs: &[&str]| signs.iter().any(|sign| entry.message.contains(sign));
            let forced = says(&["Killing process", "SIGKILL", "timed out", "Failed with result"]);
            assert!(!forced || says(expected), "systemd said of {}: {}", entry.unit, entry.message);
        }
        Ok(())
    }
}

/// Whether the end of a pod is unknown. What a killed agent had seen but not recorded is lost, and the next one reports
/// it as gone.
pub(crate) fn has_unknown_end(pod: &Value) -> bool {
    pod["outcome"] == "gone"
}
