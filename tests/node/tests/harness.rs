//! The disposable node itself: what the other node tests take for granted.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use winddown_node_tests::scenario::{SOON, Scenario, Setup, seven_pods};
use winddown_node_tests::{Flavour, Need, Node, Suite, base_or_skip, programs};

type TestResult = Result<(), Box<dyn Error>>;

#[tokio::test]
async fn a_node_boots_powers_off_through_logind_and_boots_again_with_its_files() -> TestResult {
    let test = "a_node_boots_powers_off_through_logind_and_boots_again_with_its_files";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else {
        return Ok(());
    };
    let mut node = Node::boot(&base).await?;
    node.run(&["sh", "-c", "echo kept > /var/lib/kept"]).await?;
    // Held for a moment only: logind must honour it and the node must still go down. Whoever listens does
    // so before there is a lock: a signal that nobody heard would leave the shell waiting.
    let mut lock = node
        .command(&[
            "sh",
            "-c",
            "dbus-monitor --system \"type='signal',member='PrepareForShutdown'\" > /run/bus & \
             until grep -q NameLost /run/bus; do sleep 0.05; done; \
             exec systemd-inhibit --what=shutdown --mode=delay --who=test sh -c '\
             until grep -q \"boolean true\" /run/bus; do sleep 0.05; done; \
             echo heard > /var/lib/heard; kill $0' $!",
        ])?
        .kill_on_drop(true)
        .spawn()?;
    node.wait_until("the lock to be listed", Duration::from_secs(10), async || {
        let listed = node.run(&["systemd-inhibit", "--list", "--no-legend"]).await;
        listed.is_ok_and(|text| text.contains("test"))
    })
    .await?;
    node.shut_down(&["systemctl", "poweroff"]).await?;
    node.wait_off(Duration::from_secs(30)).await?;
    lock.wait().await?;
    assert_eq!(node.read("/var/lib/kept")?, "kept\n");
    assert_eq!(node.read("/var/lib/heard")?, "heard\n");
    let said = node.journal(&["--unit=systemd-logind"]).await?;
    assert!(said.contains("System is powering down"), "{said}");

    node.start().await?;
    assert_eq!(node.run(&["cat", "/var/lib/kept"]).await?, "kept\n");
    let boots = node.journal(&["--list-boots"]).await?;
    assert_eq!(boots.lines().count(), 2, "{boots}");
    Ok(())
}

/// All that an installation leaves: kind, mode and owner of each file, the content of all but the programs, the group
/// and what starts at boot.
const LEFT_BY_INSTALL: &str = "find /etc/winddown/config.yaml /etc/systemd /etc/sysusers.d /etc/tmpfiles.d \
    /usr/bin/winddown* /var/lib/winddown /var/log/winddown /run/winddown -printf '%p %y %m %u %g %l\\n' | sort; \
    find /etc/systemd /etc/*.d/winddown.conf /var/lib/winddown -type f | sort | xargs sha256sum; \
    getent group winddown | cut -d: -f1; systemctl is-enabled winddown; systemctl is-active winddown";

#[tokio::test]
async fn a_node_is_given_what_install_leaves_on_one_that_is_on() -> TestResult {
    let test = "a_node_is_given_what_install_leaves_on_one_that_is_on";
    let Some(given) = Scenario::installed_with(test, Vec::new()).await? else { return Ok(()) };
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let mut node = Node::create(&base).await?;
    let config = given.node.read("/etc/winddown/config.yaml")?;
    node.write("/etc/winddown/config.yaml", config, 0o644)?;
    node.install_programs(&programs().await?, "/opt/winddown")?;
    node.start().await?;
    node.run(&["/opt/winddown/winddown", "install", "--runtime", "process"]).await?;
    let left = ["sh", "-c", LEFT_BY_INSTALL];
    let installed = node.exec(&left, Duration::from_secs(20)).await?.stdout;
    assert!(
        installed.contains("/etc/systemd/system/winddown.service f 644 root root"),
        "{installed}"
    );
    assert!(installed.ends_with("winddown\nenabled\ninactive\n"), "{installed}");
    let given = given.node.exec(&left, Duration::from_secs(20)).await?.stdout;
    let [given, installed] = [&given, &installed].map(|text| text.lines().collect::<BTreeSet<_>>());
    assert_eq!(given.symmetric_difference(&installed).collect::<Vec<_>>(), Vec::<&&str>::new());
    Ok(())
}

#[tokio::test]
async fn nodes_side_by_side_do_not_see_each_other() -> TestResult {
    let Some(base) =
        base_or_skip("nodes_side_by_side_do_not_see_each_other", Flavour::Plain).await?
    else {
        return Ok(());
    };
    let (one, two) = tokio::join!(Node::boot(&base), Node::boot(&base));
    let (mut one, two) = (one?, two?);
    assert_ne!(one.name(), two.name());
    let seen = one.run(&["systemctl", "show", "--property=ControlGroup", "dbus.service"]).await?;
    assert_eq!(seen.trim(), "ControlGroup=/system.slice/dbus.service");
    one.run(&["systemctl", "stop", "dbus.socket", "dbus.service"]).await?;
    assert_eq!(two.run(&["systemctl", "is-active", "dbus.service"]).await?.trim(), "active");
    one.kill();
    assert_eq!(two.run(&["systemctl", "is-active", "dbus.service"]).await?.trim(), "active");
    assert!(one.run(&["true"]).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_node_of_debian_13_has_systemd_257_and_ends_its_pods_in_order() -> TestResult {
    let test = "a_node_of_debian_13_has_systemd_257_and_ends_its_pods_in_order";
    has_its_systemd_and_ends_its_pods_in_order(test, Suite::Trixie).await
}

#[tokio::test]
async fn a_node_of_debian_sid_has_systemd_262_and_ends_its_pods_in_order() -> TestResult {
    let test = "a_node_of_debian_sid_has_systemd_262_and_ends_its_pods_in_order";
    has_its_systemd_and_ends_its_pods_in_order(test, Suite::Sid).await
}

async fn has_its_systemd_and_ends_its_pods_in_order(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    let said = scenario.node.run(&["systemctl", "--version"]).await?;
    let version = said.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
    match suite {
        // It moves on.
        Suite::Sid => assert!(version >= Some(suite.systemd()), "{said}"),
        _ => assert_eq!(version, Some(suite.systemd()), "{said}"),
    }
    let groups =
        scenario.node.run(&["stat", "--file-system", "-c", "%T", "/sys/fs/cgroup"]).await?;
    assert_eq!(groups.trim(), "cgroup2fs");
    scenario.start().await?;
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    let (_, last_exit) = scenario.assert_ended_in_order()?;
    scenario.lock_outlived(last_exit).await?;
    scenario.assert_systemd_killed_nothing().await
}

#[tokio::test]
async fn an_emulated_node_has_the_controllers_and_powers_off() -> TestResult {
    let test = "an_emulated_node_has_the_controllers_and_powers_off";
    let Some(base) = base_or_skip(test, Suite::Trixie.with(Flavour::Emulated)).await? else {
        return Ok(());
    };
    let mut node = Node::boot(&base).await?;
    has_the_controllers(&node).await?;
    node.shut_down(&["systemctl", "poweroff"]).await?;
    node.wait_off(Duration::from_secs(60)).await?;
    assert!(node.run(&["true"]).await.is_err());
    let said = node.journal(&["--unit=systemd-logind"]).await?;
    assert!(said.contains("System is powering down"), "{said}");
    Ok(())
}

/// And the host and the node reach each other.
async fn has_the_controllers(node: &Node) -> TestResult {
    let controllers = node.run(&["cat", "/sys/fs/cgroup/cgroup.controllers"]).await?;
    for controller in ["cpu", "io", "memory", "pids"] {
        assert!(controllers.split_whitespace().any(|one| one == controller), "{controllers}");
    }
    // What the host writes is there at once, and what the node writes is there for the host.
    node.write("/var/lib/given", "from outside", 0o640)?;
    assert_eq!(node.run(&["stat", "-c", "%a %s", "/var/lib/given"]).await?, "640 12\n");
    let limits =
        ["MemoryMax=64M", "CPUQuota=50%", "TasksMax=40"].map(|l| format!("--property={l}"));
    let [memory, cpu, tasks] = &limits;
    let limited = ["systemd-run", "--quiet", "--wait", "--pipe", memory, cpu, tasks];
    let own = "cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup) && \
               cat memory.max cpu.max pids.max | tee /var/lib/told";
    let told = node.run(&[&limited[..], &["sh", "-c", own]].concat()).await?;
    assert_eq!(told, "67108864\n50000 100000\n40\n");
    assert_eq!(node.read("/var/lib/told")?, told);
    let failed = node.exec(&["sh", "-c", "echo why >&2; exit 7"], Duration::from_secs(20)).await?;
    assert_eq!((failed.status.code(), failed.stderr.as_str()), (Some(7), "why\n"));
    Ok(())
}

#[tokio::test]
async fn a_node_with_a_kernel_of_its_own_has_the_controllers_limits_a_pod_and_powers_off()
-> TestResult {
    let test = "a_node_with_a_kernel_of_its_own_has_the_controllers_limits_a_pod_and_powers_off";
    let setup = Setup { needs: &[Need::Controllers], ..Setup::default() };
    let pods = seven_pods().into_iter().take(1).collect();
    let Some(mut scenario) = Scenario::with_services_as(test, pods, &setup).await? else {
        return Ok(());
    };
    has_the_controllers(&scenario.node).await?;
    let script = "cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup) && \
                  cat memory.max cpu.max > /var/lib/limits && exec sleep 1000";
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bounded"},
        "spec": {"hostNetwork": true, "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": "host", "command": ["/bin/sh", "-c", script],
            "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
        }]},
    });
    scenario.node.write("/etc/winddown/pods/bounded.json", pod.to_string(), 0o644)?;
    scenario.start().await?;
    let told =
        async || scenario.node.read("/var/lib/limits").is_ok_and(|text| text.ends_with('\n'));
    if let Err(error) = scenario.node.wait_until("the pod's limits", SOON, told).await {
        return Err(
            format!("{error}\n{}", scenario.node.journal(&["--unit=winddown"]).await?).into()
        );
    }
    assert_eq!(scenario.node.read("/var/lib/limits")?, "67108864\n50000 100000\n");
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    assert!(scenario.node.run(&["true"]).await.is_err());
    scenario.lock_released_at().await?;
    scenario.assert_systemd_killed_nothing().await
}
