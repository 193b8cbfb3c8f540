//! Cases as JSON in, victims and reasons out.

use serde_json::{Value, json};
use winddown_preemption::{CaseError, PlanOptions, Strategy, plan_case};

fn plan_json_line(case: &str, options: &PlanOptions) -> Result<String, CaseError> {
    plan_case(case, options).map(|answer| serde_json::to_string(&answer).unwrap())
}

fn pod(name: &str, priority: i64, requests: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
    })
}

fn case(pods: &[Value], requirements: &Value) -> String {
    let preemptor = pod("dns", 2_000_001_000, &json!({}));
    let case = json!({"id": 7, "preemptor": preemptor, "pods": pods, "requirements": requirements});
    case.to_string()
}

fn explained(case: &str, strategy: Strategy) -> Value {
    let options = PlanOptions { strategy, explain: true };
    serde_json::from_str(&plan_json_line(case, &options).unwrap()).unwrap()
}

#[test]
fn the_answer_names_the_victims_in_their_order_and_nothing_else() {
    let (a, b) = (pod("a", 0, &json!({"cpu": "100m"})), pod("b", 0, &json!({"cpu": "300m"})));
    let case = case(&[a, b], &json!([{"resource": "cpu", "quantity": 350}]));
    let answer = plan_json_line(&case, &PlanOptions::default()).unwrap();
    assert_eq!(answer, r#"{"id":7,"victims":["b","a"],"error":null}"#);
}

#[test]
fn that_no_pod_can_be_ended_is_an_answer() {
    let case = case(&[], &json!([{"resource": "cpu", "quantity": 350}]));
    let answer = plan_json_line(&case, &PlanOptions::default()).unwrap();
    assert_eq!(
        answer,
        "{\"id\":7,\"victims\":[],\"error\":\"no set of running pods found to reclaim resources: \
         [(res: cpu, q: 350), ]\"}"
    );
}

#[test]
fn explained_every_pod_has_its_class_requests_distance_and_a_reason() {
    let pods = [
        pod("big", 0, &json!({"cpu": "300m"})),
        pod("fits", 0, &json!({"cpu": "200m"})),
        pod("small", 0, &json!({"cpu": "50m"})),
        pod("memory", 0, &json!({"memory": "1Gi"})),
        pod("batch", 5, &json!({"cpu": "200m"})),
        pod("peer", 2_000_001_000, &json!({"cpu": "200m"})),
    ];
    let case = case(&pods, &json!([{"resource": "cpu", "quantity": 200}]));
    let answer = explained(&case, Strategy::Minimal);
    assert_eq!((&answer["strategy"], &answer["shown"]), (&json!("minimal"), &json!("identity")));
    let told: Vec<(&str, &str)> = answer["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|told| (told["name"].as_str().unwrap(), told["text"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            ("big", "kept: in a victim's place it would free more than is needed"),
            ("fits", "victim 1"),
            ("small", "kept: would not be enough in any victim's place"),
            ("memory", "kept: frees nothing of what is lacking"),
            ("batch", "kept: pods up to priority 0 are enough"),
            ("peer", "kept: may not be preempted by this pod"),
        ]
    );
    assert_eq!(
        answer["candidates"][2],
        json!({
            "name": "small", "namespace": "default", "qos": "Burstable", "critical": false,
            "preemptable": true, "priority": 0, "cpuMilli": 50, "memoryBytes": 0, "frees": {"cpu": 50},
            "distance": 0.5625, "terminating": false, "taken": false, "reason": "tooSmall",
            "text": "kept: would not be enough in any victim's place",
        })
    );
}

#[test]
fn the_heuristic_explains_itself_by_class_and_distance() {
    let pods = [
        pod("near", 0, &json!({"cpu": "200m"})),
        pod("far", 0, &json!({"cpu": "50m"})),
        pod("idle", 0, &json!({})),
    ];
    let one = case(&pods, &json!([{"resource": "cpu", "quantity": 200}]));
    let answer = explained(&one, Strategy::Distance);
    assert_eq!(answer["shown"], Value::Null);
    assert_eq!(answer["candidates"][1]["reason"], "farther");
    let one = case(&pods, &json!([{"resource": "pods", "quantity": 1}]));
    let answer = explained(&one, Strategy::Distance);
    assert_eq!(answer["victims"], json!(["idle"]));
    assert_eq!(answer["candidates"][0]["reason"], "classKept");
}

#[test]
fn what_is_wrong_with_a_case_is_named() {
    let told = |case: &str| plan_json_line(case, &PlanOptions::default()).unwrap_err();
    assert!(matches!(told("{}"), CaseError::Syntax(_)));
    assert!(matches!(
        told(&case(&[json!({"metadata": {}})], &json!([]))),
        CaseError::Pod { index: 0, .. }
    ));
    assert!(told("[1").to_string().starts_with("not a preemption case; expected an object with"));
}

#[test]
fn amounts_of_any_size_are_answered() {
    let huge = pod("huge", 0, &json!({"memory": "9223372036854775807", "cpu": "9E", "a/b": "9E"}));
    let tiny = pod("tiny", -2_147_483_648, &json!({"memory": "1", "cpu": "1m", "a/b": "1"}));
    let most = i64::MAX;
    for strategy in [Strategy::Distance, Strategy::Minimal] {
        for quantities in
            [[1, 1, 1], [most, 1, most], [most, most, most], [0, -1, i64::MIN], [3, 5, 7]]
        {
            let [memory, cpu, other] = quantities;
            let requirements = json!([
                {"resource": "memory", "quantity": memory}, {"resource": "cpu", "quantity": cpu},
                {"resource": "a/b", "quantity": other}, {"resource": "pods", "quantity": 2},
            ]);
            let pods = [huge.clone(), tiny.clone(), huge.clone()];
            explained(&case(&pods, &requirements), strategy);
        }
    }
}
