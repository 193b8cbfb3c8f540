//! What a purge takes, and when it is refused.

use winddown_node_tests::scenario::{Scenario, TestResult, seven_pods};

#[tokio::test]
async fn a_purge_is_refused_while_pods_run_and_goes_on_once_they_are_drained() -> TestResult {
    let test = "a_purge_is_refused_while_pods_run_and_goes_on_once_they_are_drained";
    let purge = ["winddown", "uninstall", "--purge"];
    let scenarios = [
        Scenario::installed_with(test, seven_pods()).await?,
        Scenario::with_services(test, seven_pods()).await?,
        Scenario::with_containerd(test, seven_pods()).await?,
    ];
    for scenario in scenarios.into_iter().flatten() {
        scenario.start().await?;
        scenario.all_pods_are("Running").await?;
        let running = scenario.untouched_pids().await?;
        let refused = scenario.node.exec(&purge, std::time::Duration::from_secs(60)).await?;
        println!("{}", refused.stderr);
        assert!(
            !refused.status.success() && refused.stderr.contains("/var/log/winddown is in use")
        );
        assert_eq!(scenario.untouched_pids().await?, running);
        assert!(scenario.lock_is_listed().await, "the agent runs");

        scenario.node.run(&["sh", "-c", "winddown drain || [ $? = 5 ]"]).await?;
        println!("{}", scenario.node.run(&purge).await?);
        for path in ["/var/lib/winddown", "/var/log/winddown", "/run/winddown"] {
            assert!(scenario.node.run(&["test", "!", "-e", path]).await.is_ok(), "{path}");
        }
    }
    Ok(())
}
