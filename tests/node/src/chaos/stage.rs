//! Plays a schedule on its own node, and records what happens.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::api::Api;
use super::feature::FAR_OFF;
use super::record::{Harm, Record};
use super::strike::{NOTICE, OTHER_DELAY, Target, breakable, prepare};
use super::{Fault, Feature, Parts, Phase, Runtime, Schedule, seen};
use crate::installation::Installation;
use crate::scenario::{SOON, Scenario, Setup, TestResult, logind_property};
use crate::witness::{LockWatch, PodWatch, now, processes};
use crate::{Disk, Node, PodBehavior, TestPod, install_pods, remove_pods};

/// The path of the agent's kubeconfig.
pub(super) const KUBECONFIG: &str = "/etc/winddown/kubeconfig";
/// The time of each group. Every pod that stops by itself does so well within it.
pub(super) const SECONDS: [u32; 3] = [5, 3, 3];
const CONFIG: &str = "/etc/winddown/config.yaml";
const COMPANION: &str = "companion";
/// How long a node may take to shut down: longer than the budget and all of systemd's own work.
const DOWN: Duration = Duration::from_secs(40);
/// The size of the disk for the agent's state: small, so that it is soon full.
const DISK: u64 = 16 << 20;
/// How often the state of a node is polled. Each poll costs time.
const LOOK: Duration = Duration::from_millis(50);
/// Limits the agent and its pods in the phase in which one of them wants more memory: with control groups of version 2
/// in its unit's own group. With version 1, systemd does not use the memory controller in the node, because it is
/// read-only when systemd starts.
const BOUNDED: &str = "[Service]\nMemoryMax=320M\nEnvironment=WINDDOWN_NODE_CGROUP=/bounded\nExecStart=\n\
    ExecStart=/bin/sh -c 'unit=/system.slice/winddown.service; cd /sys/fs/cgroup/memory || \
    exec env WINDDOWN_NODE_CGROUP=$$unit /usr/bin/winddownd; mkdir -p bounded; \
    [ -s /run/bounded ] || echo 320M >bounded/memory.limit_in_bytes; echo 320M >/run/bounded; \
    echo $$$$ >bounded/cgroup.procs; exec /usr/bin/winddownd'\n";

/// A node that plays its schedule.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    schedule: &'a Schedule,
    booted: SystemTime,
    pub(super) scenario: Scenario,
    disk: Option<Disk>,
    api: Option<Api>,
    lock: LockWatch,
    pods: PodWatch,
    harms: RefCell<Vec<Harm>>,
    asked: Vec<u64>,
    victims: Vec<String>,
    drained: Option<u64>,
    at_rest: Option<std::collections::BTreeMap<String, usize>>,
    untimely: Vec<String>,
}

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShutdownResult {
    Down,
    Back,
}

// === impl Stage ===

impl<'a> Stage<'a> {
    /// Boots a node and installs what the schedule needs; or one that an earlier schedule has `left`. The agent is not
    /// started.
    pub(super) async fn set(
        schedule: &'a Schedule,
        parts: &Parts,
        left: Option<Node>,
    ) -> TestResult<Self> {
        let has_disk = schedule.strikes.iter().any(|strike| strike.fault.needs_a_disk());
        let mut node = match left {
            Some(node) => {
                remove_pods(&node)?;
                node
            }
            None => {
                let node = Node::create(parts.base(schedule)).await?;
                if has_disk {
                    node.add_disk(DISK).await?;
                }
                install(&node, schedule).await?;
                node
            }
        };
        let booted = SystemTime::now();
        if schedule.phase == Phase::Eviction {
            node.write("/etc/systemd/system/winddown.service.d/50-bound.conf", BOUNDED, 0o644)?;
        }
        if schedule.runtime.has_containers() {
            node.configure_containerd()?;
        }
        node.start().await?;
        if schedule.runtime.has_containers() {
            node.import_images().await?;
        }
        let api = match schedule.runtime.has_api() {
            true => Some(Api::start(&node, schedule.is_on(Feature::AfterNodes)).await?),
            false => None,
        };
        let disk = has_disk.then(|| node.disk()).transpose()?;
        let pods = match schedule.phase {
            Phase::Idle => Vec::new(),
            _ => schedule.pods.clone(),
        };
        let scenario = Scenario { node, pods };
        match (schedule.runtime, &api) {
            (Runtime::Companion, Some(api)) => play_kubelet(&scenario, api).await?,
            _ => install_pods(&scenario.node, &scenario.pods)?,
        }
        prepare(&scenario, &schedule.strikes, &parts.clock)?;
        let on = |feature| schedule.is_on(feature);
        if on(Feature::FarNotice) {
            scenario.node.write(NOTICE, FAR_OFF, 0o644)?;
        }
        let lock = LockWatch::start(&scenario.node).await?;
        Ok(Self {
            schedule,
            booted,
            scenario,
            disk,
            api,
            lock,
            pods: PodWatch::default(),
            harms: RefCell::default(),
            asked: Vec::new(),
            victims: Vec::new(),
            drained: None,
            at_rest: None,
            untimely: Vec::new(),
        })
    }

    /// Plays the schedule, from the start of the agent until the node is off.
    ///
    /// # Errors
    /// Something that had to happen did not.
    pub(super) async fn play(&mut self) -> TestResult {
        match self.schedule.phase {
            Phase::Idle => {
                self.start(true).await?;
                self.suffer().await?;
                install_pods(&self.scenario.node, &self.schedule.pods)?;
                self.scenario.pods.clone_from(&self.schedule.pods);
            }
            Phase::Start => {
                self.start(false).await?;
                self.suffer().await?;
            }
            Phase::Steady => {
                self.start(true).await?;
                self.rest().await?;
                self.suffer().await?;
            }
            Phase::Preemption => {
                self.start(true).await?;
                self.rest().await?;
                self.intrude()?;
                self.suffer().await?;
            }
            Phase::Eviction => {
                self.start(true).await?;
                self.rest().await?;
                self.devour().await?;
                self.suffer().await?;
            }
            Phase::Drained => {
                self.start(true).await?;
                self.rest().await?;
                self.drain().await?;
                self.suffer().await?;
            }
            Phase::Shutdown => {
                self.start(true).await?;
                self.rest().await?;
                return self.shut_down_under_fire().await;
            }
        }
        if self.schedule.rests {
            self.rest().await?;
        }
        self.lock_is_held().await?;
        self.ask().await?;
        self.comes(false).await.map(drop)
    }

    async fn start(&self, wait: bool) -> TestResult {
        let how: &[&str] = if wait { &[] } else { &["--no-block"] };
        self.scenario.node.run(&[&["systemctl", "start", "winddown"], how].concat()).await?;
        if wait { self.lock_is_held().await } else { Ok(()) }
    }

    async fn suffer(&self) -> TestResult {
        let target = Target {
            scenario: &self.scenario,
            phase: self.schedule.phase,
            suite: self.schedule.suite,
            disk: self.disk.as_ref(),
            api: self.api.as_ref(),
            harms: &self.harms,
        };
        target.suffer(&self.schedule.strikes).await
    }

    /// Adds a critical pod that requests all processors.
    fn intrude(&mut self) -> TestResult {
        let processors = crate::usage::processors()?.to_string();
        let intruder = self.schedule.intruder(processors);
        let asks = |pod: &&TestPod| pod.cpu.is_some() && pod.priority < intruder.priority;
        self.victims.extend(self.scenario.pods.iter().filter(asks).map(|pod| pod.name.clone()));
        install_pods(&self.scenario.node, std::slice::from_ref(&intruder))?;
        self.scenario.pods.push(intruder);
        Ok(())
    }

    /// Makes the hog take memory.
    async fn devour(&mut self) -> TestResult {
        let logs = self.scenario.logs();
        let hogs = self.scenario.pods.iter().filter(|pod| pod.behavior == PodBehavior::Hog);
        for hog in hogs {
            let (_, pid) = *logs[&hog.name].starts.last().ok_or("the hog does not run")?;
            self.scenario.node.run(&["sh", "-c", &format!("kill -USR1 {pid}")]).await?;
            self.victims.push(hog.name.clone());
        }
        Ok(())
    }

    /// Drains the node.
    async fn drain(&mut self) -> TestResult {
        self.scenario.node.run(&["winddown", "drain"]).await?;
        self.drained = Some(now());
        self.victims.extend(self.scenario.pods.iter().map(|pod| pod.name.clone()));
        Ok(())
    }

    async fn shut_down_under_fire(&mut self) -> TestResult {
        self.ask().await?;
        self.suffer().await?;
        let may = self.schedule.may_be_taken_back();
        if self.comes(may).await? == ShutdownResult::Down {
            return Ok(());
        }
        self.scenario.node.run(&["systemctl", "unmask", "--runtime", "poweroff.target"]).await?;
        self.rest().await?;
        self.lock_is_held().await?;
        self.ask().await?;
        self.comes(false).await.map(drop)
    }

    async fn ask(&mut self) -> TestResult {
        self.pods.add(&self.scenario.node, &self.scenario.pods)?;
        self.delay_is_kept().await?;
        self.asked.push(now());
        let on = |feature| self.schedule.is_on(feature);
        let way = if on(Feature::RebootInPlace) { "reboot" } else { "poweroff" };
        let past_the_guard = on(Feature::Guard).then_some("--ignore-inhibitors");
        let asked: Vec<&str> = ["systemctl", way].into_iter().chain(past_the_guard).collect();
        self.scenario.node.shut_down(&asked).await?;
        Ok(())
    }

    /// Waits until logind's delay is at least as long as another package wants, if one does.
    async fn delay_is_kept(&self) -> TestResult {
        if !self.schedule.has(Fault::OtherDelay) || self.schedule.phase == Phase::Shutdown {
            return Ok(());
        }
        let is_kept =
            async || self.scenario.logind_delay().await.is_ok_and(|delay| delay >= OTHER_DELAY);
        self.wait_until("logind to wait as long as another package wants", is_kept).await
    }

    /// Waits until the node is off, or is known to stay up.
    async fn comes(&mut self, may_come_back: bool) -> TestResult<ShutdownResult> {
        let until = Instant::now() + DOWN;
        loop {
            if !self.scenario.node.is_on() {
                self.scenario.node.wait_off(DOWN).await?;
                return Ok(ShutdownResult::Down);
            }
            if may_come_back && self.is_back().await {
                return Ok(ShutdownResult::Back);
            }
            if Instant::now() > until {
                return Err(self.told("the node to switch off").await);
            }
            sleep(LOOK).await;
        }
    }

    /// Whether the agent reports no shutdown in progress, and logind expects none.
    async fn is_back(&self) -> bool {
        let Ok(status) = self.scenario.status_from_outside().await else { return false };
        if status["shutdown"]["phase"] == "running" || status["lock"]["state"] != "held" {
            return false;
        }
        let property = logind_property("PreparingForShutdown");
        let preparing = self.scenario.node.exec(&property, Duration::from_secs(2)).await;
        preparing.is_ok_and(|answer| answer.stdout.trim() == "b false")
    }

    /// Waits until logind lists the lock.
    async fn lock_is_held(&self) -> TestResult {
        let held = async || {
            let status = self.scenario.status_from_outside().await.unwrap_or_default();
            self.lock.held_since().is_some() && status["lock"]["state"] == "held"
        };
        self.wait_until("the lock to be held", held).await
    }

    /// Waits until every pod that should run does so, as exactly one process.
    async fn rest(&mut self) -> TestResult {
        let is_broken = self.harms.borrow().iter().any(|harm| harm.fault == Fault::ManifestBroken);
        let stray = breakable(&self.scenario.pods).filter(|_| is_broken);
        let at_rest = async || {
            let status = self.scenario.status_from_outside().await.unwrap_or_default();
            seen::is_at_rest(&self.scenario, &status, &self.victims, stray)
        };
        self.wait_until("every pod to be as it should", at_rest).await?;
        let pods = &self.scenario.pods;
        self.at_rest = Some(processes(&self.scenario.node, pods));
        self.untimely.extend(seen::termination_notices(&self.scenario.node)?);
        Ok(())
    }

    async fn wait_until(&self, what: &str, mut is: impl AsyncFnMut() -> bool) -> TestResult {
        let until = Instant::now() + SOON;
        while !is().await {
            if Instant::now() > until {
                return Err(self.told(what).await);
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn told(&self, what: &str) -> Box<dyn std::error::Error> {
        let status = self.scenario.status_from_outside().await.unwrap_or(Value::Null);
        format!("never: {what}\n{status:#}").into()
    }

    /// Collects the record after the node is off.
    pub(super) async fn record(&self) -> TestResult<Record> {
        let said = seen::Said::read(&self.scenario).await?;
        let reports = match &self.disk {
            Some(disk) => disk.path(),
            None => self.scenario.node.host_path("/var/lib/winddown"),
        };
        Ok(Record {
            runtime: self.schedule.runtime,
            features: self.schedule.features.clone(),
            untimely: self.untimely.clone(),
            pods: self.scenario.pods.clone(),
            logs: self.scenario.logs(),
            lives: self.pods.seen(),
            lock: self.lock.seen(),
            asked: self.asked.clone(),
            gave_up: said.gave_up,
            harms: self.harms.borrow().clone(),
            slow_api: self.api.as_ref().map(Api::slow).unwrap_or_default(),
            victims: self.victims.clone(),
            drained: self.drained,
            at_rest: self.at_rest.clone(),
            complaints: said.complaints,
            lost_patience: said.lost_patience,
            excuses: said.excuses,
            reports: seen::reports(&reports.join("reports"), self.booted)?,
        })
    }
}

/// Installs winddown in a node that is off. It is not started at boot.
async fn install(node: &Node, schedule: &Schedule) -> TestResult {
    let mut more = format!("shutdownNotices:\n  file: {NOTICE}\n");
    more.extend(schedule.features.iter().map(|feature| feature.config()));
    if schedule.runtime.has_api() {
        let mode = if schedule.runtime == Runtime::Companion { COMPANION } else { "cluster" };
        more.push_str(&format!("mode: {mode}\nkubeconfig: {KUBECONFIG}\n"));
    }
    let unit = schedule.runtime.name();
    let seconds = Feature::seconds(&schedule.features);
    let config = Setup { seconds, more, ..Setup::default() }.config(unit);
    Installation::of(unit, &config).await?.lay_into(node)
}

/// Lets an agent that belongs to the cluster run the pods and go: it records in containerd and at the API server what a
/// kubelet does.
async fn play_kubelet(scenario: &Scenario, api: &Api) -> TestResult {
    let node = &scenario.node;
    let beside = node.read(CONFIG)?;
    node.write(CONFIG, beside.replace(COMPANION, "cluster"), 0o644)?;
    install_pods(node, &[])?;
    node.run(&["systemctl", "start", "winddown"]).await?;
    api.bind(&scenario.pods).await?;
    scenario.wait_started(scenario.pods.len()).await?;
    api.run(&scenario.pods).await?;
    node.run(&["systemctl", "stop", "winddown"]).await?;
    node.run(&["rm", "-rf", "/run/winddown"]).await?;
    node.write(CONFIG, beside, 0o644)?;
    Ok(())
}
