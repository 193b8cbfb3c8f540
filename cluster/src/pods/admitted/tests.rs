use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde_json::json;

use super::*;

/// A node for so many pods, which counts the pods that are read of it.
struct Node {
    admitted: AdmittedPods,
    most: i64,
    pods: Arc<Mutex<Vec<Pod>>>,
    visits: Arc<AtomicUsize>,
    ends: AtomicU64,
}

impl Node {
    fn new(most: i64, pods: usize) -> Self {
        let pods = (0..pods).map(|number| pod(&format!("own{number}"), 0)).collect();
        let (pods, admitted) = (Arc::new(Mutex::new(pods)), AdmittedPods::default());
        Self { admitted, most, pods, visits: Arc::default(), ends: AtomicU64::default() }
    }

    fn judge(&self, pod: &Pod) -> bool {
        let read = || {
            let (pods, visits) = (Arc::clone(&self.pods), Arc::clone(&self.visits));
            OtherPods::new(move || {
                let pods = pods.lock().clone();
                visits.fetch_add(pods.len(), Ordering::SeqCst);
                pods
            })
        };
        let outlook = |others: &OtherPods| {
            let kept = if pod.is_critical() { self.admitted.beside(pod).len() } else { 0 };
            match others.used().pods + i64::try_from(kept).unwrap() < self.most {
                true => Outlook::Starts,
                false => Outlook::Refused(Rejection::new("OutOfpods", "no room")),
            }
        };
        let ends = self.ends.load(Ordering::SeqCst);
        matches!(self.admitted.judge(pod, ends, read, outlook), Outlook::Starts)
    }

    fn intake_admits(&self, pod: &Pod) {
        self.admitted.record(&Event::PodAdmitted { pod: pod.pod_ref().clone() });
        self.pods.lock().push(pod.clone());
    }

    fn one_terminates(&self) {
        self.pods.lock().pop();
        self.ends.fetch_add(1, Ordering::SeqCst);
    }

    fn visits(&self) -> usize {
        self.visits.swap(0, Ordering::SeqCst)
    }
}

fn pod(uid: &str, priority: i32) -> Pod {
    let object = json!({
        "metadata": {"name": uid, "namespace": "shop", "uid": uid},
        "spec": {"containers": [], "priority": priority},
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

#[test]
fn the_pods_on_the_node_are_read_once_for_a_whole_listing() {
    let node = Node::new(1000, 100);
    for number in 0..200 {
        let listed = pod(&format!("u{number}"), 0);
        assert!(node.judge(&listed));
        // What it refers to is resolved soon, or late.
        if number % 2 == 0 {
            node.intake_admits(&listed);
        }
    }
    assert_eq!(node.visits(), 100, "not 100 for the first one, and more for each of the others");
    node.one_terminates();
    (300..310).for_each(|number| assert!(node.judge(&pod(&format!("u{number}"), 0))));
    assert_eq!(node.visits(), 199, "once");
}

#[test]
fn a_pod_that_is_admitted_keeps_its_room_until_it_is_not_wanted_any_more() {
    let node = Node::new(3, 1);
    let (first, second, late) = (pod("first", 0), pod("second", 0), pod("late", 0));
    assert!(node.judge(&first) && node.judge(&second));
    assert!(!node.judge(&late), "no room beside these");
    assert!(node.judge(&first), "it is not judged again");
    node.intake_admits(&first);
    assert!(!node.judge(&late));
    node.admitted.forget(second.uid());
    assert!(node.judge(&late));
    assert!(!node.judge(&second));
}

#[test]
fn no_pod_is_refused_nor_admitted_by_what_was_true_before() {
    let node = Node::new(2, 2);
    let web = pod("web", 0);
    assert!(!node.judge(&web));
    // Nobody has told of it yet.
    node.pods.lock().pop();
    assert!(node.judge(&web));
    node.admitted.forget(web.uid());
    node.intake_admits(&pod("static", 0));
    assert!(!node.judge(&web), "the room has been taken");
}

#[test]
fn room_is_kept_from_all_but_those_that_may_preempt_a_pod() {
    let node = Node::new(2, 1);
    let web = pod("web", 0);
    assert!(node.judge(&web));
    assert_eq!(node.admitted.beside(&pod("more important", 10)).len(), 1);
    let critical = pod("critical", 2_000_000_000);
    assert_eq!(node.admitted.beside(&critical).len(), 0);
    assert!(node.judge(&critical));
    assert_eq!(node.admitted.beside(&pod("other", 2_000_000_000)).len(), 1);
    assert!(!node.judge(&pod("other", 2_000_000_000)), "as critical as the other");
}

#[test]
fn what_a_pod_has_passed_is_not_asked_again() {
    struct Never;
    impl AdmitHandler for Never {
        fn admit(&self, _: &Pod, _: &OtherPods) -> Result<(), Rejection> {
            Err(Rejection::new("Evicted", "the node runs short"))
        }
    }
    let (node, web, late) = (Node::new(9, 0), pod("web", 0), pod("late", 0));
    assert!(node.judge(&web));
    let check = node.admitted.passed(Arc::new(Never));
    let others = OtherPods::new(Vec::new);
    assert!(check.admit(&web, &others).is_ok() && check.admit(&late, &others).is_err());
    assert!(matches!(check.decide(&web, &others), Verdict::Admitted));
    assert!(matches!(check.decide(&late, &others), Verdict::Refused(_)));
}
