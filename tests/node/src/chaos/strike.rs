//! Applies faults to a node, and undoes them.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::api::Api;
use super::record::Harm;
use super::{Fate, Fault, Phase, Service, Strike, clock};
use crate::scenario::{SOON, Scenario, TestResult};
use crate::witness::now;
use crate::{Disk, PodBehavior, Process, Suite, TestPod};

/// The timeout of a command: in a node that is shutting down it may never end.
const COMMAND: Duration = Duration::from_secs(8);
/// The file in which the owner's program announces that the node will go away.
pub(super) const NOTICE: &str = "/run/winddown/notice";
/// The delay that another package wants from logind, in seconds: longer than winddown's.
pub(super) const OTHER_DELAY: f64 = 60.0;
/// Gives journald file systems in which there is room for no journal, and makes it open new files there.
const FILL_JOURNAL: &str = "for folder in /var/log/journal /run/log/journal; do
    mkdir -p $folder
    mount -t tmpfs -o size=16k none $folder
done
systemctl kill --signal=USR2 --kill-whom=main systemd-journald";
const EMPTY_JOURNAL: &str = "umount --lazy /var/log/journal /run/log/journal
systemctl kill --signal=USR2 --kill-whom=main systemd-journald";
const AGENT: [&str; 1] = ["/usr/bin/winddownd"];

/// The target of faults.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) phase: Phase,
    pub(super) suite: Suite,
    pub(super) disk: Option<&'a Disk>,
    pub(super) api: Option<&'a Api>,
    pub(super) harms: &'a RefCell<Vec<Harm>>,
}

impl Target<'_> {
    /// Applies all strikes, each at its time, and returns when all are over.
    ///
    /// # Errors
    /// A strike could not be applied or undone although the node is up.
    pub(super) async fn suffer(&self, strikes: &[Strike]) -> TestResult {
        let one = async |n: usize| match strikes.get(n) {
            Some(strike) => self.strike(strike).await,
            None => Ok(()),
        };
        let (a, b, c) = tokio::join!(one(0), one(1), one(2));
        a.and(b).and(c)
    }

    async fn strike(&self, strike: &Strike) -> TestResult {
        sleep(strike.after).await;
        let from = now();
        let done = self.harm(strike).await;
        self.harms.borrow_mut().push(Harm { fault: strike.fault, from, to: now() });
        match done {
            // Once the node shuts down, commands fail, and disks and files are gone.
            Err(_) if self.phase == Phase::Shutdown => Ok(()),
            Err(error) => Err(format!("{}: {error}", strike.fault).into()),
            Ok(()) => Ok(()),
        }
    }

    async fn harm(&self, strike: &Strike) -> TestResult {
        let node = &self.scenario.node;
        match strike.fault {
            Fault::AgentKilled => {
                if let Some(agent) = node.process(&AGENT) {
                    agent.kill()?;
                }
                self.answers().await
            }
            Fault::AgentHangs => {
                if let Some(agent) = node.process(&AGENT) {
                    agent.hang()?;
                    sleep(strike.lasts).await;
                    agent.go_on()?;
                }
                Ok(())
            }
            Fault::Of(service, fate) => self.befall(service, fate, strike.lasts).await,
            Fault::ApiDown => {
                let api = self.api.ok_or("the node is in no cluster")?;
                api.down(node, strike.lasts * 3).await
            }
            Fault::StateFull => {
                let disk = self.disk.ok_or("the node has no disk of its own")?;
                disk.fill()?;
                sleep(strike.lasts).await;
                Ok(disk.empty()?)
            }
            Fault::DiskHangs => {
                let disk = self.disk.ok_or("the node has no disk of its own")?;
                Ok(disk.hang(strike.lasts).await?)
            }
            Fault::JournalFull => {
                self.run(&["sh", "-ec", FILL_JOURNAL]).await?;
                sleep(strike.lasts * 3).await;
                self.run(&["sh", "-ec", EMPTY_JOURNAL]).await
            }
            Fault::EtcReadOnly => {
                self.run(&["sh", "-c", "mount --bind /etc /etc && mount -o remount,bind,ro /etc"])
                    .await?;
                sleep(strike.lasts).await;
                self.run(&["umount", "--lazy", "/etc"]).await
            }
            Fault::ClockForward => clock::set(node, i64::from(strike.jump)),
            Fault::ClockBack => clock::set(node, -i64::from(strike.jump)),
            Fault::Cancel => self.cancel().await,
            Fault::SecondShutdown => self.shut_down(&["systemctl", "reboot"]).await,
            Fault::ShutdownPastLogind => {
                self.shut_down(&["systemctl", "start", "--no-block", "poweroff.target"]).await
            }
            Fault::Reload => self.reload().await,
            Fault::ManifestBroken => {
                let pod = breakable(&self.scenario.pods).ok_or("the node has no pods")?;
                let path = format!("/etc/winddown/pods/{pod}.json");
                node.write(&path, "kind: Pod\n  spec: [", 0o644)?;
                if let Some(agent) = node.process(&AGENT) {
                    agent.kill()?;
                }
                self.answers().await
            }
            Fault::NoticeWithdrawn => {
                node.write(NOTICE, "60s the power goes\n", 0o644)?;
                sleep(strike.lasts).await;
                self.run(&["rm", NOTICE]).await?;
                self.no_notice_is_in_force().await
            }
            Fault::OtherDelay => {
                let drop_in = format!("[Login]\nInhibitDelayMaxSec={OTHER_DELAY}\n");
                node.write("/etc/systemd/logind.conf.d/50-other.conf", drop_in, 0o644)?;
                self.run(&["systemctl", "kill", "--signal=HUP", "systemd-logind"]).await?;
                self.reload().await
            }
        }
    }

    /// Does this to a service.
    async fn befall(&self, service: Service, fate: Fate, lasts: Duration) -> TestResult {
        let unit = service.unit();
        // What logind and D-Bus sleep through in a shutdown is time that the pods do not get.
        let is_short = self.phase == Phase::Shutdown && service.carries_the_lock();
        match fate {
            Fate::Killed => {
                let kill = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", unit];
                self.run(&kill).await?;
                self.run(&["systemctl", "start", unit]).await?;
            }
            Fate::Stopped => {
                self.run(&["systemctl", "stop", unit]).await?;
                sleep(lasts).await;
                self.run(&["systemctl", "start", unit]).await?;
            }
            Fate::Restarted => self.run(&["systemctl", "restart", unit]).await?,
            Fate::Hangs => {
                let show = ["systemctl", "show", "--property=MainPID", "--value", unit];
                let pid = timeout(COMMAND, self.scenario.node.run(&show)).await??;
                let pid = self.scenario.node.host_pid(pid.trim().parse()?);
                let Some(main) = pid.and_then(Process::of) else { return Ok(()) };
                main.hang()?;
                sleep(if is_short { lasts } else { lasts * 3 }).await;
                return Ok(main.go_on()?);
            }
        }
        if service.carries_the_lock() { self.answers().await } else { Ok(()) }
    }

    /// Cancels a shutdown. If one is in progress, newer versions of logind can cancel it; older ones are made to fail
    /// when they carry it out after the last lock was released.
    async fn cancel(&self) -> TestResult {
        match (self.phase, self.suite) {
            (Phase::Shutdown, Suite::Bookworm) => {
                return self.run(&["systemctl", "mask", "--runtime", "poweroff.target"]).await;
            }
            (Phase::Shutdown, Suite::Trixie) => {}
            _ => self.ask_logind(&["shutdown", "+1"]).await?,
        }
        self.ask_logind(&["shutdown", "-c"]).await
    }

    /// Runs a command that needs logind, again if another fault took that away meanwhile.
    async fn ask_logind(&self, argv: &[&str]) -> TestResult {
        if self.run(argv).await.is_ok() {
            return Ok(());
        }
        self.answers().await?;
        self.run(argv).await
    }

    /// Changes only the limit of pods.
    async fn reload(&self) -> TestResult {
        // Replaces the whole file at once, because two strikes may edit it at the same time.
        let edit =
            ["sed", "-i", "-e", "$a maxPods: 90", "-e", "/^maxPods/d", "/etc/winddown/config.yaml"];
        // While /etc is read-only there is nothing new to read, which must do no harm either.
        let _ = self.run(&edit).await;
        // A recently killed agent reads it anyway when it starts.
        let _ =
            self.run(&["systemctl", "kill", "--signal=HUP", "--kill-whom=main", "winddown"]).await;
        Ok(())
    }

    /// Waits until the agent knows that the notice was withdrawn.
    async fn no_notice_is_in_force(&self) -> TestResult {
        let none = async || {
            let status = self.scenario.status_from_outside().await;
            status.is_ok_and(|status| status["notices"].as_array().is_none_or(Vec::is_empty))
        };
        self.scenario.node.wait_until("the notice to be withdrawn", SOON, none).await?;
        Ok(())
    }

    /// Waits until logind answers again.
    async fn answers(&self) -> TestResult {
        let answers = async || self.run(&["loginctl", "list-sessions"]).await.is_ok();
        self.scenario.node.wait_until("logind to answer", SOON, answers).await?;
        Ok(())
    }

    async fn run(&self, argv: &[&str]) -> TestResult {
        timeout(COMMAND, self.scenario.node.run(argv)).await??;
        Ok(())
    }

    async fn shut_down(&self, argv: &[&str]) -> TestResult {
        timeout(COMMAND, self.scenario.node.shut_down(argv)).await??;
        Ok(())
    }
}

/// The pod whose manifest [`Fault::ManifestBroken`] breaks: one that stops when asked, if there is any.
pub(super) fn breakable(pods: &[TestPod]) -> Option<&str> {
    let willing = pods.iter().rev().find(|pod| pod.behavior == PodBehavior::Willing);
    willing.or(pods.last()).map(|pod| pod.name.as_str())
}

/// Prepares a node for its faults, before its agent starts.
pub(super) fn prepare(scenario: &Scenario, strikes: &[Strike], library: &Path) -> TestResult {
    match strikes.iter().any(|strike| strike.fault.needs_a_clock()) {
        true => clock::install(&scenario.node, library),
        false => Ok(()),
    }
}
