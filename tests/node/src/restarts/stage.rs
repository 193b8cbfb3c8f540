//! A node on which the deeds are done.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::seen::{Seen, order, pods};
use super::{Deed, Runtime};
use crate::scenario::{SOON, Scenario, Setup, TestResult, logind_property};
use crate::witness::{PodWatch, now, processes};
use crate::{Disk, PodBehavior, PodLog, TestPod};

/// The file in which the owner's program announces that the node goes away.
const NOTICE: &str = "/run/winddown/notice";
/// The size of the disk for the agent's state, and the file there that makes it run short.
const DISK: u64 = 64 << 20;
const FILLER: &str = "filler";
const CONFIG: &str = "shutdownNotices:\n  file: /run/winddown/notice\n\
    evictionHard: {nodefs.available: 20Mi}\nevictionPressureTransitionPeriod: 1s\n";
/// The longest that a deed may take, and that the pods may need to run again afterwards.
const DONE: Duration = Duration::from_secs(45);
/// How long the pods have to stay as they are before they count as at rest.
const AT_REST: Duration = Duration::from_millis(700);
const AGENT: [&str; 1] = ["/usr/bin/winddownd"];
/// The critical pod that comes for a preemption.
const INTRUDER: &str = "intruder";

/// A node with five pods.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) scenario: Scenario,
    disk: Disk,
}

// === impl Stage ===

impl Stage {
    /// Boots a node, and starts the agent, of the package if there is one, and the pods. Returns none, after reporting
    /// why, if no node can be booted.
    pub(crate) async fn set(
        test: &str,
        runtime: Runtime,
        package: Option<PathBuf>,
    ) -> TestResult<Option<Self>> {
        let more = CONFIG.to_owned();
        let setup = Setup { more, package, disk: Some(DISK), ..Setup::default() };
        let pods = five_pods();
        let scenario = match runtime {
            Runtime::Process => Scenario::installed_as(test, pods, &setup).await?,
            Runtime::Systemd => Scenario::with_services_as(test, pods, &setup).await?,
            Runtime::Containerd => Scenario::with_containerd_as(test, pods, &setup).await?,
        };
        let Some(scenario) = scenario else { return Ok(None) };
        scenario.start().await?;
        let disk = scenario.node.disk()?;
        let mut stage = Self { scenario, disk };
        let intruder = intruder()?;
        stage.scenario.pods.push(match runtime {
            Runtime::Process | Runtime::Systemd => intruder,
            Runtime::Containerd => intruder.in_container(),
        });
        stage.rests().await?;
        Ok(Some(stage))
    }

    /// Boots the node again after a shutdown.
    pub(crate) async fn boot(&mut self) -> TestResult {
        self.scenario.node.start().await?;
        self.disk = self.scenario.node.disk()?;
        self.rests().await
    }

    /// Does the deed, and undoes it. `strike` says whether the agent is killed, or else restarted, and how long after
    /// the deed began.
    ///
    /// # Errors
    /// The deed did not come to its end, or the pods did not come back.
    pub(crate) async fn play(
        &mut self,
        deed: Deed,
        strike: Option<(bool, Duration)>,
    ) -> TestResult<Seen> {
        self.empty_logs()?;
        let mut watch = PodWatch::default();
        watch.add(&self.scenario.node, &self.scenario.pods)?;
        self.begin(deed).await?;
        let begun = now();
        let over = async {
            self.over(deed, &watch).await?;
            // Another pod is evicted soon after the first has ended, and a strike may last.
            if deed == Deed::Eviction {
                std::fs::remove_file(self.disk.path().join(FILLER))?;
            }
            TestResult::Ok(())
        };
        match strike {
            None => over.await?,
            Some((kills, after)) => {
                let struck = async {
                    sleep(after).await;
                    self.strike(kills).await;
                };
                let ((), over) = tokio::join!(struck, over);
                over?;
            }
        }
        let ended = watch.seen().into_iter().filter_map(|life| life.ended).max();
        let took = Duration::from_nanos(ended.unwrap_or(begun).saturating_sub(begun));
        let mut report = None;
        if deed == Deed::Shutdown {
            self.scenario.node.wait_off(DONE).await?;
            report = Some(self.outcome()?);
        } else {
            self.undo(deed).await?;
        }
        let undone = now();
        if deed != Deed::Shutdown {
            self.rests().await?;
        }
        let (logs, lives) = (self.scenario.logs(), watch.seen());
        let running = processes(&self.scenario.node, &self.scenario.pods);
        let is_late = |(name, log): (&String, &PodLog)| {
            !deed.victims().contains(&name.as_str()) && log.terms.iter().any(|at| *at < undone)
        };
        Ok(Seen {
            took,
            pods: pods(&logs, &lives, &running),
            order: order(&self.scenario.pods, &logs, &lives),
            report,
            was_late: deed == Deed::DrainCalledOff && logs.iter().any(is_late),
        })
    }

    /// Asks the agent what operators and scrapers ask it all day.
    pub(crate) async fn is_asked(&self) -> TestResult {
        for command in
            [&["plan", "shutdown"][..], &["plan", "eviction"], &["status"], &["config", "show"]]
        {
            self.scenario.text(command).await?;
        }
        Ok(())
    }

    /// Restarts containerd, and waits until all is as before.
    pub(crate) async fn restarts_the_runtime(&self) -> TestResult {
        self.scenario.node.run(&["systemctl", "restart", "containerd"]).await?;
        self.rests().await
    }

    /// The agent's process id on the host.
    pub(crate) async fn agent_on_the_host(&self) -> TestResult<u32> {
        let status = self.scenario.status_from_outside().await?;
        let pid = status["node"]["pid"].as_u64().ok_or("the status names no process")?;
        Ok(self.scenario.node.host_pid(u32::try_from(pid)?).ok_or("the agent is gone")?)
    }

    /// How many lines the agent has logged since.
    pub(crate) async fn lines_since(&self, since: Instant) -> TestResult<usize> {
        let since = format!("--since=-{}s", since.elapsed().as_secs() + 1);
        let said = self.scenario.node.journal(&["--unit=winddown", &since]).await?;
        Ok(said.lines().count())
    }

    /// How many files the agent keeps but its reports.
    pub(crate) async fn files(&self) -> TestResult<usize> {
        let find = ["find", "/run/winddown", "/var/lib/winddown", "-type", "f"];
        let kept = ["-not", "-path", "*/reports/*"];
        Ok(self.scenario.node.run(&[&find[..], &kept].concat()).await?.lines().count())
    }

    /// What the agent and its pods logged since.
    pub(crate) async fn journal_since(&self, since: Instant) -> String {
        let seconds = since.elapsed().as_secs() + 1;
        let since = format!("--since=-{seconds}s");
        let said = self.scenario.node.journal(&["--output=short-precise", &since]).await;
        let said = said.unwrap_or_else(|error| error.to_string());
        format!("{:#?}\n{said}", self.scenario.logs())
    }

    /// Starts the deed, and returns when its first pod was asked, or its cause is there.
    async fn begin(&self, deed: Deed) -> TestResult {
        let node = &self.scenario.node;
        match deed {
            Deed::Kill => {
                for victim in deed.victims() {
                    let name = self.full_name(victim).await?;
                    self.in_the_background(&["winddown", "kill", &name]).await?;
                }
                return self.asked(deed.victims().len()).await;
            }
            Deed::Drain | Deed::DrainCalledOff => {
                self.in_the_background(&["winddown", "drain"]).await?;
                return self.asked(1).await;
            }
            Deed::Removal => {
                for victim in deed.victims() {
                    node.run(&["rm", &manifest(victim)]).await?;
                }
            }
            Deed::Notice => node.write(NOTICE, "60s the power goes\n", 0o644)?,
            Deed::Preemption => {
                let intruder = self.scenario.pods.iter().find(|pod| pod.name == INTRUDER);
                let manifest_of = intruder.ok_or("no pod comes")?.manifest();
                node.write(&manifest(INTRUDER), manifest_of, 0o644)?;
            }
            Deed::Eviction => {
                node.run(&["fallocate", "-l", "40M", &format!("/var/lib/winddown/{FILLER}")])
                    .await?;
                return self.asked(1).await;
            }
            Deed::ShutdownCalledOff => {
                // Another lock keeps logind waiting while its job is made impossible.
                let unit = ["systemd-run", "--quiet", "--unit=another-lock", "--collect"];
                let lock = ["systemd-inhibit", "--what=shutdown", "--mode=delay", "sleep", "60"];
                node.run(&[&unit[..], &lock[..]].concat()).await?;
                let listed = async || {
                    let list = node.run(&["systemd-inhibit", "--list"]).await.unwrap_or_default();
                    list.contains("sleep 60")
                };
                node.wait_until("the other lock", SOON, listed).await?;
                node.shut_down(&["systemctl", "poweroff"]).await?;
            }
            Deed::Shutdown => drop(node.shut_down(&["systemctl", "poweroff"]).await?),
        }
        Ok(())
    }

    /// Waits until the deed has ended its pods.
    async fn over(&self, deed: Deed, watch: &PodWatch) -> TestResult {
        let until = Instant::now() + DONE;
        loop {
            let lives = watch.seen();
            let ended =
                |name: &&str| lives.iter().any(|life| life.pod == **name && life.ended.is_some());
            let comes = deed != Deed::Preemption || self.runs(INTRUDER);
            if deed.waits_for().iter().all(&ended) && comes {
                return Ok(());
            }
            if Instant::now() > until {
                let left: Vec<_> =
                    deed.waits_for().iter().filter(|name| !ended(name)).copied().collect();
                return Err(format!("never ended: {left:?}\n{}", self.said().await).into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn strike(&self, kills: bool) {
        if kills {
            if let Some(agent) = self.scenario.node.process(&AGENT) {
                let _ = agent.kill();
            }
            return;
        }
        // A node that is going down may refuse it.
        let restart = ["systemctl", "restart", "winddown"];
        let _ = self.scenario.node.exec(&restart, SOON).await;
    }

    /// Removes the cause of the deed.
    async fn undo(&self, deed: Deed) -> TestResult {
        let node = &self.scenario.node;
        match deed {
            // The cause of an eviction is gone when its pod is.
            Deed::Kill | Deed::Eviction | Deed::Shutdown => {}
            Deed::Removal => {
                let victims = |pod: &&TestPod| deed.victims().contains(&pod.name.as_str());
                for pod in self.scenario.pods.iter().filter(victims) {
                    node.write(&manifest(&pod.name), pod.manifest(), 0o644)?;
                }
            }
            Deed::Drain | Deed::DrainCalledOff => {
                self.scenario.lock_is_back().await?;
                self.scenario.text(&["undrain"]).await?;
            }
            Deed::Notice => drop(node.run(&["rm", NOTICE]).await?),
            Deed::Preemption => drop(node.run(&["rm", &manifest(INTRUDER)]).await?),
            Deed::ShutdownCalledOff => {
                node.run(&["systemctl", "mask", "--runtime", "poweroff.target"]).await?;
                node.run(&["systemctl", "stop", "another-lock"]).await?;
                let given_up = async || {
                    let asked = node.run(&logind_property("PreparingForShutdown")).await;
                    asked.is_ok_and(|answer| answer.trim() == "b false")
                };
                node.wait_until("logind to give up", SOON, given_up).await?;
                node.run(&["systemctl", "unmask", "--runtime", "poweroff.target"]).await?;
            }
        }
        Ok(())
    }

    /// Waits until each of the five pods runs once, nothing is short, and pods are admitted, for a while.
    pub(crate) async fn rests(&self) -> TestResult {
        let until = Instant::now() + DONE;
        let mut since = None;
        loop {
            match self.is_at_rest().await {
                false => since = None,
                true => {
                    let since = *since.get_or_insert_with(Instant::now);
                    if since.elapsed() > AT_REST {
                        return Ok(());
                    }
                }
            }
            if Instant::now() > until {
                let running = processes(&self.scenario.node, &self.scenario.pods);
                return Err(format!("never at rest: {running:?}\n{}", self.said().await).into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn is_at_rest(&self) -> bool {
        let running = processes(&self.scenario.node, &self.scenario.pods);
        let as_many = |(name, count): (&String, &usize)| *count == usize::from(name != INTRUDER);
        // A pod that was asked runs until it has exited.
        let was_asked = |log: &PodLog| log.terms.last() > log.starts.last().map(|(at, _)| at);
        let is_terminating = |(name, log): (&String, &PodLog)| name != INTRUDER && was_asked(log);
        let logs = self.scenario.logs();
        if !running.iter().all(as_many) || logs.iter().any(is_terminating) {
            return false;
        }
        let status = self.scenario.status_from_outside().await.unwrap_or_default();
        let all = status["pods"].as_array().cloned().unwrap_or_default();
        status["lock"]["state"] == "held"
            && status["admissionClosed"] != true
            && status["shutdown"]["phase"] != "running"
            && all.len() == running.len() - 1
            && all.iter().all(|pod| pod["phase"] == "Running")
    }

    fn runs(&self, name: &str) -> bool {
        processes(&self.scenario.node, &self.scenario.pods).get(name) == Some(&1)
    }

    /// Waits until `count` pods have been asked.
    async fn asked(&self, count: usize) -> TestResult {
        let asked = async || {
            let logs = self.scenario.logs();
            logs.values().filter(|log| !log.terms.is_empty()).count() >= count
        };
        self.scenario.node.wait_until("the pods to be asked", SOON, asked).await?;
        Ok(())
    }

    async fn in_the_background(&self, command: &[&str]) -> TestResult {
        let run = ["systemd-run", "--quiet", "--collect", "--no-block", "--"];
        self.scenario.node.run(&[&run[..], command].concat()).await?;
        Ok(())
    }

    /// The name of a static pod, which ends with the node's.
    async fn full_name(&self, name: &str) -> TestResult<String> {
        let status = self.scenario.status_from_outside().await?;
        let all = status["pods"].as_array().cloned().unwrap_or_default();
        let mut names = all.iter().filter_map(|pod| pod["name"].as_str());
        let full = names.find(|full| full.starts_with(&format!("{name}-")));
        Ok(full.ok_or_else(|| format!("no pod {name}: {status}"))?.to_owned())
    }

    /// Empties the logs, which are read again and again, and makes one for the pod that comes and goes.
    fn empty_logs(&self) -> TestResult {
        for pod in &self.scenario.pods {
            let log = format!("/var/log/pods-under-test/{}", pod.name);
            self.scenario.node.write(&log, "", 0o666)?;
        }
        Ok(())
    }

    async fn said(&self) -> String {
        let status = self.scenario.status_from_outside().await.unwrap_or_default();
        format!("{status:#}")
    }

    /// The outcome in the newest report on the disk.
    fn outcome(&self) -> TestResult<String> {
        let mut files: Vec<_> = std::fs::read_dir(self.disk.path().join("reports"))?
            .filter_map(|file| Some(file.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
            .collect();
        files.sort();
        let newest = files.last().ok_or("no report was written")?;
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(newest)?)?;
        Ok(format!("{} {}", report["trigger"], report["outcome"]))
    }
}

fn manifest(name: &str) -> String {
    format!("/etc/winddown/pods/{name}.json")
}

/// Three pods of the first group, of which one ignores SIGTERM and one is the first to be evicted, and one of each other
/// group.
fn five_pods() -> Vec<TestPod> {
    let requests = |pod: TestPod| TestPod { cpu: Some("100m".to_owned()), ..pod };
    let deaf =
        TestPod { behavior: PodBehavior::Lasting, grace_seconds: 4, ..TestPod::new("deaf", 0, 0) };
    vec![
        requests(TestPod::new("web", 0, 1500)),
        deaf,
        TestPod::new("leaf", -10, 700),
        requests(TestPod::new("queue", 1000, 800)),
        TestPod::new("agent", 2_000_000_000, 400),
    ]
}

/// A critical pod that requests all processors.
fn intruder() -> TestResult<TestPod> {
    let cpu = Some(crate::usage::processors()?.to_string());
    Ok(TestPod { cpu, ..TestPod::new(INTRUDER, 2_000_001_000, 300) })
}
