//! Tests of the pollers against a stand-in server on a socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use winddown_shared::{Notice, Notices, WallClock, WallTime};

use super::*;
use stand_in::{Reply, StandIn};

mod stand_in;
use crate::NoticeAggregator;

/// The timeout of a test: longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

const NOW: &str = "2026-11-20T12:00:00Z";

struct Rig {
    stand_in: StandIn,
    aggregator: NoticeAggregator,
    notices: Notices,
    task: JoinHandle<()>,
    directory: Arc<tempfile::TempDir>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Rig {
    async fn start(cloud: Cloud, prepare: impl FnOnce(&StandIn)) -> Self {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        Self::start_in(cloud, "one", directory, prepare).await
    }

    /// On a machine that has been up for an hour, in the boot `boot_id`.
    async fn start_in(
        cloud: Cloud,
        boot_id: &str,
        directory: Arc<tempfile::TempDir>,
        prepare: impl FnOnce(&StandIn),
    ) -> Self {
        let stand_in = StandIn::start().await;
        prepare(&stand_in);
        let aggregator = NoticeAggregator::new();
        let settings = CloudSettings {
            endpoint: stand_in.endpoint(),
            poll: Duration::from_secs(1),
            lead: Duration::from_secs(600),
            wall: WallClock::fixed(NOW.parse().expect("a time")),
            uptime: || Some(Duration::from_secs(3600)),
            boot_id: boot_id.to_owned(),
            directory: directory.path().to_owned(),
        };
        let notices = aggregator.notices();
        let follows = aggregator.clone();
        let task = tokio::spawn(async move {
            tokio::join!(follows.run(), watch_cloud(&follows, cloud, settings));
        });
        Self { stand_in, aggregator, notices, task, directory }
    }

    /// The same machine after a reboot by the cloud, with the stand-in prepared by `prepare`.
    async fn rebooted(self, cloud: Cloud, prepare: impl FnOnce(&StandIn)) -> Self {
        self.task.abort();
        Self::start_in(cloud, "two", Arc::clone(&self.directory), prepare).await
    }

    /// Waits until this many requests have been made and answered.
    async fn asked(&self, count: usize) {
        let asked = async {
            while self.stand_in.asked().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, asked).await.expect("asked in time");
    }

    async fn notice(&mut self) -> Arc<Notice> {
        let given =
            tokio::time::timeout(LIMIT, self.notices.wait_for(|state| !state.in_effect.is_empty()))
                .await;
        let given = given.expect("a notice in time").expect("the aggregator lives");
        given.in_effect.first().cloned().expect("some")
    }

    async fn withdrawn(&mut self) {
        let gone =
            tokio::time::timeout(LIMIT, self.notices.wait_for(|state| state.in_effect.is_empty()))
                .await;
        gone.expect("withdrawn in time").expect("the aggregator lives");
    }

    async fn problem(&mut self, part: &str) -> String {
        let mut changes = self.aggregator.changes();
        let found = async {
            loop {
                let problems =
                    self.aggregator.source_statuses().into_iter().filter_map(|s| s.problem);
                if let Some(problem) = problems.into_iter().find(|p| p.contains(part)) {
                    return problem.to_string();
                }
                changes.changed().await.expect("the aggregator lives");
            }
        };
        match tokio::time::timeout(LIMIT, found).await {
            Ok(problem) => problem,
            Err(_) => panic!("no problem with {part:?}: {:?}", self.aggregator.source_statuses()),
        }
    }
}

fn left(notice: &Notice) -> u64 {
    notice.deadline.saturating_duration_since(notice.since).as_secs()
}

fn at(seconds: u64) -> WallTime {
    let now: WallTime = NOW.parse().expect("a time");
    now.checked_add(Duration::from_secs(seconds)).expect("in range")
}

const SPOT: &str = "/latest/meta-data/spot/instance-action";
const AWS_EVENTS: &str = "/latest/meta-data/events/maintenance/scheduled";
const AZURE_EVENTS: &str = "/metadata/scheduledevents";
const AZURE_NAME: &str = "/metadata/instance/compute/name";
const PREEMPTED: &str = "/computeMetadata/v1/instance/preempted";
const MAINTENANCE: &str = "/computeMetadata/v1/instance/maintenance-event";

fn spot(seconds: u64) -> String {
    format!(r#"{{"action":"terminate","time":"{}"}}"#, at(seconds))
}

#[tokio::test]
async fn a_spot_instance_that_is_interrupted_gives_a_notice_and_takes_it_back() {
    let mut rig = Rig::start(Cloud::Aws, |aws| {
        aws.publish("/latest/api/token", "token-1\n");
        aws.publish(AWS_EVENTS, "[]");
    })
    .await;
    while rig.stand_in.asked().len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    rig.stand_in.publish(SPOT, spot(120));
    let notice = rig.notice().await;
    assert_eq!((&*notice.source, left(&notice)), ("aws", 120));
    let asked = rig.stand_in.asked();
    assert!(asked.first().is_some_and(|q| q.starts_with("PUT /latest/api/token HTTP/1.1")));
    let carries = |q: &&String| q.contains("x-aws-ec2-metadata-token: token-1");
    assert_eq!(asked.iter().filter(carries).count(), asked.len() - 1, "{asked:?}");
    rig.stand_in.reply(SPOT, Reply::Say(404, "", String::new()));
    rig.withdrawn().await;
}

#[tokio::test]
async fn a_token_that_is_no_longer_taken_is_asked_for_anew() {
    let mut rig = Rig::start(Cloud::Aws, |aws| {
        aws.publish("/latest/api/token", "old");
        aws.reply(SPOT, Reply::Say(401, "", String::new()));
    })
    .await;
    let why = rig.problem("401").await;
    assert!(why.contains(SPOT), "{why}");
    rig.stand_in.publish("/latest/api/token", "new");
    rig.stand_in.publish(SPOT, spot(90));
    rig.notice().await;
    assert!(rig.stand_in.asked().last().is_some_and(|q| q.contains(": new\r\n")));
    assert!(rig.aggregator.source_statuses().iter().all(|s| s.problem.is_none()));
}

#[tokio::test]
async fn an_error_page_is_no_token_and_no_name_and_both_are_asked_for_again() {
    let page = "<html>\n<body>not yet</body>\n</html>\n";
    let mut aws = Rig::start(Cloud::Aws, |aws| aws.publish("/latest/api/token", page)).await;
    let mut azure = Rig::start(Cloud::Azure, |azure| azure.publish(AZURE_NAME, page)).await;
    aws.problem("/latest/api/token").await;
    azure.problem(AZURE_NAME).await;
    aws.stand_in.publish("/latest/api/token", "t");
    aws.stand_in.publish(SPOT, spot(90));
    aws.notice().await;
    azure.stand_in.publish(AZURE_NAME, "vmss_1");
    azure.stand_in.publish(AZURE_EVENTS, azure_event("Preempt", "vmss_1"));
    azure.notice().await;
}

#[tokio::test]
async fn a_maintenance_that_is_far_away_is_held_back() {
    let event = |when: WallTime| {
        let date = when.strftime("%d %b %Y %H:%M:%S GMT");
        format!(r#"[{{"Code":"system-reboot","State":"active","NotBefore":"{date}"}}]"#)
    };
    let rig = Rig::start(Cloud::Aws, |aws| {
        aws.publish("/latest/api/token", "t");
        aws.publish(AWS_EVENTS, event(at(86_400)));
    })
    .await;
    let published = tokio::time::timeout(LIMIT, async {
        let mut changes = rig.aggregator.changes();
        loop {
            if let Some(status) =
                rig.aggregator.source_statuses().pop().filter(|s| s.notice.is_some())
            {
                return status;
            }
            changes.changed().await.expect("the aggregator lives");
        }
    });
    let status = published.await.expect("heard in time");
    assert!(!status.effective);
    assert!(rig.notices.borrow().in_effect.is_empty());
}

#[tokio::test]
async fn a_service_that_fails_after_a_notice_withdraws_nothing() {
    let mut rig = Rig::start(Cloud::Aws, |aws| {
        aws.publish("/latest/api/token", "t");
        aws.publish(SPOT, spot(120));
    })
    .await;
    let before = rig.notice().await;
    for (reply, part) in [
        (Reply::Say(500, "", String::new()), "500"),
        (Reply::Say(200, "", "<html>busy</html>".to_owned()), "not understood"),
    ] {
        rig.stand_in.reply(SPOT, reply);
        rig.problem(part).await;
    }
    assert_eq!(rig.notices.borrow().in_effect.first().cloned(), Some(before));
}

#[tokio::test]
async fn the_services_clock_counts_when_our_own_is_wrong() {
    let mut rig = Rig::start(Cloud::Aws, |aws| {
        aws.publish("/latest/api/token", "t");
        // Ours says 2026-11-20T12:00:00Z.
        let date = "Date: Thu, 20 Nov 2025 12:00:00 GMT\r\n";
        let body = r#"{"action":"stop","time":"2025-11-20T12:02:00Z"}"#;
        aws.reply(SPOT, Reply::Say(200, date, body.to_owned()));
    })
    .await;
    let notice = rig.notice().await;
    assert_eq!(left(&notice), 120);
}

#[tokio::test]
async fn a_spot_action_of_an_earlier_boot_hides_no_scheduled_event() {
    // Not every response has a date.
    for dated in ["Date: Fri, 20 Nov 2026 12:00:00 GMT\r\n", ""] {
        let mut rig = Rig::start(Cloud::Aws, |aws| {
            aws.publish("/latest/api/token", "t");
            let two_hours_ago = at(0).checked_sub(Duration::from_secs(7200)).expect("in range");
            let stopped = format!(r#"{{"action":"stop","time":"{two_hours_ago}"}}"#);
            aws.reply(SPOT, Reply::Say(200, dated, stopped));
            let date = at(300).strftime("%d %b %Y %H:%M:%S GMT");
            let event =
                format!(r#"[{{"Code":"system-reboot","State":"active","NotBefore":"{date}"}}]"#);
            aws.publish(AWS_EVENTS, event);
        })
        .await;
        let notice = rig.notice().await;
        assert_eq!(left(&notice), 300, "{dated:?}");
    }
}

#[tokio::test]
async fn an_aws_reboot_that_is_done_and_still_listed_starts_nothing() {
    let event = |when: WallTime| {
        let date = when.strftime("%d %b %Y %H:%M:%S GMT");
        format!(
            r#"{{"EventId":"e{when}","Code":"system-reboot","State":"active","NotBefore":"{date}"}}"#
        )
    };
    let two_hours_ago = at(0).checked_sub(Duration::from_secs(7200)).expect("in range");
    let mut rig = Rig::start(Cloud::Aws, |aws| {
        aws.publish("/latest/api/token", "t");
        aws.publish(AWS_EVENTS, format!("[{}]", event(two_hours_ago)));
    })
    .await;
    // A token, and both requests twice: the first responses have been processed.
    rig.asked(5).await;
    assert!(rig.notices.borrow().in_effect.is_empty());
    rig.stand_in.publish(AWS_EVENTS, format!("[{},{}]", event(two_hours_ago), event(at(300))));
    let notice = rig.notice().await;
    assert_eq!(left(&notice), 300, "another one is still ahead");
}

#[tokio::test]
async fn an_azure_event_that_started_before_the_boot_starts_nothing_after_it() {
    let started = serde_json::json!({"DocumentIncarnation": 2, "Events": [{
        "EventId": "f020ba2e", "EventType": "Reboot", "EventStatus": "Started",
        "Resources": ["vmss_1"], "NotBefore": "",
    }]});
    let prepare = |azure: &StandIn| {
        azure.publish(AZURE_NAME, "vmss_1");
        azure.publish(AZURE_EVENTS, started.to_string());
    };
    let mut rig = Rig::start(Cloud::Azure, prepare).await;
    rig.notice().await;
    // Two more requests: the first response is on disk by then.
    rig.asked(4).await;
    let mut rig = rig.rebooted(Cloud::Azure, prepare).await;
    rig.asked(4).await;
    assert!(rig.notices.borrow().in_effect.is_empty(), "{:?}", rig.aggregator.source_statuses());
    // The next one counts.
    rig.stand_in.publish(AZURE_EVENTS, started.to_string().replace("f020ba2e", "another"));
    rig.notice().await;
}

#[tokio::test]
async fn a_preemption_that_google_still_tells_after_the_boot_starts_nothing() {
    let (yes, no) = ("TRUE".to_owned(), "FALSE".to_owned());
    let prepare = |gcp: &StandIn| {
        gcp.reply(PREEMPTED, Reply::Etag("a2", yes.clone()));
        gcp.reply(MAINTENANCE, Reply::Etag("b1", "NONE".to_owned()));
    };
    let mut rig = Rig::start(Cloud::Gcp, prepare).await;
    rig.notice().await;
    // Both values, and both long polls: the first responses have been processed.
    rig.asked(4).await;
    let mut rig = rig.rebooted(Cloud::Gcp, prepare).await;
    rig.asked(4).await;
    assert!(rig.notices.borrow().in_effect.is_empty(), "{:?}", rig.aggregator.source_statuses());
    rig.stand_in.reply(PREEMPTED, Reply::Etag("a3", no));
    rig.asked(5).await;
    rig.stand_in.reply(PREEMPTED, Reply::Etag("a4", yes));
    rig.notice().await;
}

fn azure_event(kind: &str, machine: &str) -> String {
    let date = at(60).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    serde_json::json!({"DocumentIncarnation": 1, "Events": [{
        "EventType": kind, "EventStatus": "Scheduled", "Resources": [machine], "NotBefore": date,
    }]})
    .to_string()
}

#[tokio::test]
async fn an_azure_event_of_this_machine_gives_a_notice_and_a_neighbours_does_not() {
    let mut rig = Rig::start(Cloud::Azure, |azure| {
        azure.publish(AZURE_NAME, "vmss_1");
        azure.publish(AZURE_EVENTS, azure_event("Preempt", "vmss_2"));
    })
    .await;
    while rig.stand_in.asked().len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(rig.notices.borrow().in_effect.is_empty());
    rig.stand_in.publish(AZURE_EVENTS, azure_event("Preempt", "vmss_1"));
    let notice = rig.notice().await;
    assert_eq!((&*notice.source, left(&notice)), ("azure", 60));
    assert_eq!(&*notice.text, "the machine is preempted");
    let asked = rig.stand_in.asked();
    assert!(asked.iter().all(|q| q.contains("metadata: true\r\n")), "{asked:?}");
    rig.stand_in.publish(AZURE_EVENTS, azure_event("Freeze", "vmss_1"));
    rig.withdrawn().await;
}

#[tokio::test]
async fn google_is_asked_once_and_answers_when_something_changes() {
    let mut rig = Rig::start(Cloud::Gcp, |gcp| {
        gcp.reply(PREEMPTED, Reply::Etag("a1", "FALSE".to_owned()));
        gcp.reply(MAINTENANCE, Reply::Etag("b1", "NONE".to_owned()));
    })
    .await;
    let held = |asked: &[String]| asked.iter().filter(|q| q.contains("wait_for_change")).count();
    while held(&rig.stand_in.asked()) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = rig.stand_in.asked().len();
    assert_eq!(before, 4, "once for the value and once to wait, for each of two values");
    rig.stand_in.reply(PREEMPTED, Reply::Etag("a2", "TRUE".to_owned()));
    let notice = rig.notice().await;
    assert_eq!((&*notice.source, left(&notice)), ("gcp", 30));
    let asked = rig.stand_in.asked();
    assert!(asked.iter().all(|q| q.contains("metadata-flavor: Google\r\n")), "{asked:?}");
}

#[tokio::test]
async fn maintenance_that_stops_a_google_machine_within_the_hour_is_in_effect_at_once() {
    let mut rig = Rig::start(Cloud::Gcp, |gcp| {
        gcp.reply(PREEMPTED, Reply::Etag("a1", "FALSE".to_owned()));
        gcp.reply(MAINTENANCE, Reply::Etag("b1", "TERMINATE_ON_HOST_MAINTENANCE".to_owned()));
    })
    .await;
    let notice = rig.notice().await;
    assert_eq!((&*notice.source, left(&notice)), ("gcp", 3600));
}

#[tokio::test]
async fn what_is_no_answer_is_a_problem_and_never_more() {
    let endless = {
        let mut bytes = b"HTTP/1.1 200 x\r\nContent-Length: 99999999\r\n\r\n".to_vec();
        bytes.resize(bytes.len() + 300 * 1024, b'x');
        bytes
    };
    let cases: [(&str, Vec<u8>); 6] = [
        ("garbage", b"\x00\xff\xfe garbage\r\n\r\n".to_vec()),
        ("no flavour", b"HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\nFALSE".to_vec()),
        ("no utf-8", b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\n\xff\xfe".to_vec()),
        (
            "a redirect",
            b"HTTP/1.1 302 x\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        ("a bad length", b"HTTP/1.1 200 x\r\nContent-Length: -7\r\n\r\n".to_vec()),
        ("endless", endless),
    ];
    for (name, bytes) in cases {
        let mut rig = Rig::start(Cloud::Gcp, |gcp| {
            gcp.reply(PREEMPTED, Reply::Raw(bytes));
            gcp.reply(MAINTENANCE, Reply::Etag("b1", "NONE".to_owned()));
        })
        .await;
        let why = rig.problem(PREEMPTED).await;
        assert!(rig.notices.borrow().in_effect.is_empty(), "{name}: {why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_hangs_is_given_up_and_asked_again() {
    // On the paused clock the timeouts take no time.
    let begun = Instant::now();
    let mut rig = Rig::start(Cloud::Azure, |azure| azure.reply(AZURE_NAME, Reply::Hang)).await;
    let mut changes = rig.aggregator.changes();
    changes.changed().await.expect("the aggregator lives");
    let why = rig.problem("no answer").await;
    assert!(why.contains(AZURE_NAME), "{why}");
    assert!(begun.elapsed() >= Duration::from_secs(5));
    rig.stand_in.publish(AZURE_NAME, "vmss_1");
    rig.stand_in.publish(AZURE_EVENTS, azure_event("Reboot", "vmss_1"));
}

#[tokio::test]
async fn a_metadata_service_that_is_absent_is_a_problem_that_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let aggregator = NoticeAggregator::new();
    let settings = CloudSettings {
        endpoint: endpoint.parse().expect("an endpoint"),
        poll: Duration::from_secs(1),
        lead: Duration::ZERO,
        wall: WallClock::fixed(NOW.parse().expect("a time")),
        uptime: || None,
        boot_id: String::new(),
        directory: std::env::temp_dir(),
    };
    let task = tokio::spawn(watch_cloud(&aggregator, Cloud::Aws, settings));
    let mut changes = aggregator.changes();
    let problem = loop {
        if let Some(problem) = aggregator.source_statuses().into_iter().find_map(|s| s.problem) {
            break problem;
        }
        tokio::time::timeout(LIMIT, changes.changed()).await.expect("in time").expect("alive");
    };
    task.abort();
    assert!(problem.contains("is this machine in that cloud?"), "{problem}");
    assert!(problem.to_lowercase().contains("refused"), "{problem}");
}
