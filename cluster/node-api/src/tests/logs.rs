//! Tests of reading and following logs.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::time::timeout;
use winddown_host::pod_logs::{LogReading, MAX_CONCURRENT_LOG_READS, PodLogs};

use super::Bench;
use super::clients::Client;
use super::{Cluster, client};
use crate::answer::FailureAnswer;
use crate::logs::open;
use crate::route::ContainerRef;

pub(super) fn append(file: &mut File, text: &str) {
    // In one piece, as runtimes write it.
    file.write_all(format!("2026-01-01T00:00:00Z stdout F {text}\n").as_bytes()).unwrap();
}

pub(super) fn new_log(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

async fn read(bench: &Bench, query: &str) -> Result<LogReading, FailureAnswer> {
    let container_ref = ContainerRef {
        namespace: "ns".to_owned(),
        pod: "web".to_owned(),
        container: "main".to_owned(),
    };
    open(&bench.context, &container_ref, Some(query)).await
}

/// The next block; empty at the end.
async fn next(stream: &mut (impl Stream<Item = std::io::Result<Vec<u8>>> + Unpin)) -> String {
    let next = timeout(Duration::from_secs(60), stream.next()).await.expect("it is told in time");
    String::from_utf8(next.map(Result::unwrap).unwrap_or_default()).unwrap()
}

async fn whole(bench: &Bench, query: &str) -> Result<String, (u16, String)> {
    let reading =
        read(bench, query).await.map_err(|failure| (failure.status.as_u16(), failure.text))?;
    let mut stream = pin!(reading.into_stream());
    let mut all = String::new();
    loop {
        let more = next(&mut stream).await;
        if more.is_empty() {
            return Ok(all);
        }
        all.push_str(&more);
    }
}

#[tokio::test]
async fn the_run_that_is_meant_is_read_and_what_is_not_there_is_said_as_the_kubelet_says_it() {
    let bench = Bench::with(Cluster::default());
    assert_eq!(whole(&bench, "").await, Err((404, r#"pod "web" does not exist"#.to_owned())));
    let pod = bench.pod(Err("CreateContainerConfigError"));
    let status = bench.statuses.get(pod.uid()).unwrap();
    bench.statuses.remove(pod.uid());
    bench.statuses.waits(pod, status);
    let unmade = r#"container "main" in pod "web" is waiting to start: CreateContainerConfigError"#;
    let early = "the node has not got the pod, whose ConfigMap is missing";
    assert_eq!(whole(&bench, "").await, Err((400, unmade.to_owned())), "{early}");
    bench.pod(Err("ContainerCreating"));
    let waiting = r#"container "main" in pod "web" is waiting to start: ContainerCreating"#;
    assert_eq!(whole(&bench, "").await, Err((400, waiting.to_owned())));
    append(&mut new_log(&bench.log("0.log")), "zero");
    let early = "the log is there before the status says that the container runs";
    assert_eq!(whole(&bench, "").await, Err((400, waiting.to_owned())), "{early}");
    assert_eq!(whole(&bench, "follow=true").await, Err((400, waiting.to_owned())), "{early}");
    bench.pod(Ok(0));
    assert_eq!(whole(&bench, "").await.unwrap(), "zero\n");
    let none = r#"previous terminated container "main" in pod "web" not found"#;
    assert_eq!(whole(&bench, "previous=true").await, Err((400, none.to_owned())));
    bench.pod(Err("CrashLoopBackOff"));
    assert_eq!(whole(&bench, "").await.unwrap(), "zero\n");
    assert_eq!(whole(&bench, "previous=true").await.unwrap(), "zero\n");
    bench.pod(Ok(1));
    let mut log = new_log(&bench.log("1.log"));
    (1..=5).for_each(|n| append(&mut log, &format!("one {n}")));
    assert_eq!(whole(&bench, "previous=true").await.unwrap(), "zero\n");
    assert_eq!(whole(&bench, "tailLines=2").await.unwrap(), "one 4\none 5\n");
    assert_eq!(whole(&bench, "limitBytes=9").await.unwrap(), "one 1\none");
    let stamped = "2026-01-01T00:00:00.000000000Z one 5\n";
    assert_eq!(whole(&bench, "tailLines=1&timestamps=true").await.unwrap(), stamped);
    assert_eq!(whole(&bench, "sinceTime=2026-01-02T00:00:00Z").await.unwrap(), "");
}

#[tokio::test]
async fn a_name_that_leads_out_of_the_logs_is_none_of_a_container() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let shown = client(&bench.authority, "api-server");
    let known = Client::new(&bench, Some(&shown)).await;
    for path in ["ns/web/..", "ns/web/%2e%2e", "ns/../main", "../web/main", "ns/web/other"] {
        let (status, body) = known.get(&format!("/containerLogs/{path}"), None).await.unwrap();
        assert_eq!(status, 404, "{path}: {body}");
    }
}

#[tokio::test]
async fn a_follower_hears_of_each_line_over_turns_of_the_log_until_the_container_has_ended() {
    let bench = Bench::with(Cluster::default());
    bench.pod(Ok(0));
    let path = bench.log("0.log");
    let mut log = new_log(&path);
    append(&mut log, "one");
    let reading = read(&bench, "follow=true").await.unwrap();
    let mut stream = pin!(reading.into_stream());
    assert_eq!(next(&mut stream).await, "one\n");
    append(&mut log, "two");
    assert_eq!(next(&mut stream).await, "two\n");
    // Rotation: the writer continues in the old file until it is told to open a new one.
    std::fs::rename(&path, bench.log("0.log.1")).unwrap();
    append(&mut log, "three");
    assert_eq!(next(&mut stream).await, "three\n");
    log = new_log(&path);
    append(&mut log, "four");
    assert_eq!(next(&mut stream).await, "four\n");
    // The container is restarted right after its last output.
    bench.statuses.changes();
    append(&mut log, "last words");
    bench.pod(Ok(1));
    assert_eq!(next(&mut stream).await, "last words\n");
    assert_eq!(next(&mut stream).await, "", "the next run is another log");
}

#[tokio::test]
async fn one_who_follows_a_container_that_does_not_run_gets_its_log_and_the_end() {
    let bench = Bench::with(Cluster::default());
    bench.pod(Err("CrashLoopBackOff"));
    append(&mut new_log(&bench.log("0.log")), "zero");
    assert_eq!(whole(&bench, "follow=true").await.unwrap(), "zero\n");
}

#[tokio::test]
async fn the_end_of_a_pod_is_the_end_of_its_log() {
    let bench = Bench::with(Cluster::default());
    let pod = bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "one");
    let reading = read(&bench, "follow=true").await.unwrap();
    let mut stream = pin!(reading.into_stream());
    assert_eq!(next(&mut stream).await, "one\n");
    bench.statuses.remove(pod.uid());
    assert_eq!(next(&mut stream).await, "");
}

#[tokio::test]
async fn of_a_long_log_no_more_is_read_than_its_client_takes() {
    let bench = Bench::with(Cluster::default());
    bench.pod(Ok(0));
    let mut log = new_log(&bench.log("0.log"));
    let line = "x".repeat(1000);
    (0..10_000).for_each(|_| append(&mut log, &line));
    let reading = read(&bench, "").await.unwrap();
    let mut stream = pin!(reading.into_stream());
    let mut length = 0;
    loop {
        let more = next(&mut stream).await;
        assert!(more.len() <= 40_000, "{} at once", more.len());
        if more.is_empty() {
            break;
        }
        length += more.len();
    }
    assert_eq!(length, 10_000 * 1001);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_no_other() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let mut log = new_log(&bench.log("0.log"));
    let line = "x".repeat(1000);
    (0..10_000).for_each(|_| append(&mut log, &line));
    let shown = client(&bench.authority, "api-server");
    let known = Client::new(&bench, Some(&shown)).await;
    let request = b"GET /containerLogs/ns/web/main?follow=true HTTP/1.1\r\nHost: n\r\n\r\n";
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.push(known.send(request).await.unwrap());
    }
    let (status, body) = known.get("/containerLogs/ns/web/main?tailLines=1", None).await.unwrap();
    assert!(status == 200 && body.contains(&line));
    assert_eq!(known.get("/healthz", None).await.unwrap().0, 200);
}

#[test]
fn a_log_is_opened_in_turn_so_that_a_disk_that_hangs_leaves_threads_for_others() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(async {
        let bench = Bench::with(Cluster::default());
        bench.pod(Ok(0));
        append(&mut new_log(&bench.log("0.log")), "one");
        let reads = bench.context.logs.limits()[0];
        let others: Vec<_> = std::iter::from_fn(|| reads.try_acquire().ok()).collect();
        let mut opening = pin!(read(&bench, ""));
        assert!(opening.as_mut().now_or_never().is_none());
        // The one thread does its work in order.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(opening.as_mut().now_or_never().is_none(), "others read as much as they may");
        drop(others);
        assert!(opening.await.is_ok());
        assert_eq!(reads.available_permits(), MAX_CONCURRENT_LOG_READS);
    });
}

#[test]
fn a_log_that_never_ends_holds_up_no_other_and_is_given_up_with_its_client() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(4).build().unwrap().block_on(async {
        let bench = Bench::with(Cluster::default());
        bench.pod(Ok(1));
        append(&mut new_log(&bench.log("0.log")), "one");
        // A container can make its log as long as it likes: it takes no space.
        File::create(bench.log("1.log")).unwrap().set_len(1 << 40).unwrap();
        let mut endless = tokio::task::JoinSet::new();
        for query in ["", "follow=true", "sinceTime=2026-01-01T00:00:00Z", "limitBytes=1"] {
            let reading = read(&bench, query).await.unwrap();
            endless.spawn(async move { next(&mut pin!(reading.into_stream())).await });
        }
        let other = async { whole(&bench, "previous=true&tailLines=1").await };
        let answer = timeout(Duration::from_secs(30), other).await;
        assert_eq!(answer.expect("each has its turn").unwrap(), "one\n");
        let tail = async { whole(&bench, "tailLines=1").await };
        let tail = timeout(Duration::from_secs(30), tail).await;
        assert_eq!(tail.expect("no more is searched than a log is long").unwrap(), "");
        endless.shutdown().await;
        let all = bench.context.logs.limits()[0]
            .acquire_many(MAX_CONCURRENT_LOG_READS.try_into().unwrap());
        drop(timeout(Duration::from_secs(30), all).await.expect("no thread reads on").unwrap());
    });
}

#[test]
fn a_search_ends_with_its_client_however_long_a_log_may_be() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(4).build().unwrap();
    let has_ended = runtime.block_on(async {
        let mut bench = Bench::with(Cluster::default());
        let context = Arc::get_mut(&mut bench.context).unwrap();
        let logs = context.logs.directory().to_owned();
        context.logs = PodLogs::new(logs, u64::MAX, crate::MAX_OPEN_LOGS, None);
        bench.pod(Ok(1));
        File::create(bench.log("1.log")).unwrap().set_len(1 << 40).unwrap();
        let client = timeout(Duration::from_millis(200), read(&bench, "tailLines=1"));
        assert!(client.await.is_err(), "it searches for an hour");
        let all = bench.context.logs.limits()[0]
            .acquire_many(MAX_CONCURRENT_LOG_READS.try_into().unwrap());
        timeout(Duration::from_secs(10), all).await.is_ok()
    });
    // A thread that searches on would hold up the end of the runtime.
    runtime.shutdown_background();
    assert!(has_ended, "a thread searches on");
}

#[test]
fn a_thousand_followers_hear_of_a_line_and_four_threads_read_for_all_of_them() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(4).build().unwrap().block_on(async {
        let bench = Bench::with(Cluster::default());
        bench.pod(Ok(0));
        let mut log = new_log(&bench.log("0.log"));
        append(&mut log, "one");
        let mut streams = Vec::new();
        for _ in 0..1000 {
            let reading = read(&bench, "follow=true").await.unwrap();
            streams.push(Box::pin(reading.into_stream()));
        }
        for stream in &mut streams {
            assert_eq!(next(stream).await, "one\n");
        }
        let wait = |mut stream| tokio::spawn(async move { next(&mut stream).await });
        let waiting: Vec<_> = streams.into_iter().map(wait).collect();
        append(&mut log, "two");
        for told in waiting {
            assert_eq!(told.await.unwrap(), "two\n");
        }
    });
}
