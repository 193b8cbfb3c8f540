use super::*;

#[tokio::test]
async fn one_measurement_has_everything_this_machine_tells() {
    let folder = tempfile::tempdir().unwrap();
    let mut usage = NodeUsage::new(&UsagePaths::of_host(folder.path()));
    let reading = usage.read().await;
    assert!(reading.problems.is_empty(), "{:?}", reading.problems);
    let stats = reading.stats;
    assert!(stats.memory.is_some() && stats.tasks.is_some() && stats.nodefs.is_some());
    let used = || NodeUsage::cpu_time(&UsagePaths::of_host(folder.path())).unwrap();
    assert!(used() > Duration::ZERO && used() <= used());
    assert!(usage.asking.is_none());
}

#[tokio::test]
async fn a_measurement_that_is_given_up_is_joined_by_the_next() {
    let mut usage = NodeUsage::new(&UsagePaths::of_host("/"));
    // Polled once, and dropped wherever it is.
    tokio::select! {
        biased;
        _ = usage.read() => {}
        () = std::future::ready(()) => {}
    }
    assert!(usage.read().await.stats.nodefs.is_some());
}

#[tokio::test(start_paused = true)]
async fn file_systems_that_hang_are_given_up_before_eviction_gives_up_the_measurement() {
    let mut usage = NodeUsage::new(&UsagePaths::of_host("/"));
    usage.asking = Some(tokio::spawn(std::future::pending()));
    let measured = async {
        // The kernel's own files come first.
        tokio::time::sleep(Duration::from_millis(10)).await;
        usage.read().await
    };
    let reading = tokio::time::timeout(Duration::from_secs(2), measured).await.unwrap();
    assert!(reading.stats.memory.is_some());
}

#[tokio::test(start_paused = true)]
async fn file_systems_that_hang_cost_one_wait_and_only_their_own_numbers() {
    let mut usage = NodeUsage::new(&UsagePaths::of_host("/"));
    // No thread: the clock would wait for it.
    let (answer, hang) = tokio::sync::oneshot::channel();
    usage.asking = Some(tokio::spawn(async move {
        let _: Result<(), _> = hang.await;
        DisksUsage::default()
    }));
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        let reading = usage.read().await;
        assert!(reading.stats.memory.is_some() && reading.stats.nodefs.is_none());
        let problem = winddown_shared::error_chain(&reading.problems[0]);
        assert!(problem.contains("has not answered within 1s"), "{problem}");
    }
    assert_eq!(began.elapsed(), DISK_DEADLINE, "waited for once");
    drop(answer);
    while !usage.asking.as_ref().is_none_or(JoinHandle::is_finished) {
        tokio::task::yield_now().await;
    }
    let reading = usage.read().await;
    assert!(reading.problems.is_empty());
    assert!(usage.read().await.stats.nodefs.is_some(), "asked anew");
}
