//! RBAC cannot say "of this node": what a role lets the agent's account write, a policy has to narrow.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::compare::{ACCOUNT, Right, granted, manifest};

/// Answers come of these, and nothing that stays.
const QUESTIONS: [&str; 2] = ["tokenreviews", "subjectaccessreviews"];
/// A user who may `get` one of these acts through it, which admission knows as CONNECT.
const CONNECTED: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// What admission calls a write with this right; none for reading.
fn operation(right: &Right) -> Option<&'static str> {
    let subresource = right.resource.split_once('/').map(|(_, subresource)| subresource);
    if subresource.is_some_and(|one| CONNECTED.contains(&one)) {
        return Some("CONNECT");
    }
    match &*right.verb {
        "get" | "list" | "watch" => None,
        "create" => Some("CREATE"),
        "patch" | "update" => Some("UPDATE"),
        "delete" | "deletecollection" => Some("DELETE"),
        other => panic!("no policy sees what is done with {other:?}: {right}"),
    }
}

/// Whether a policy of `objects` is in force that narrows such requests of the agent's account.
fn is_narrowed(objects: &[Value], operation: &str, right: &Right) -> bool {
    let is_bound = |policy: &Value| {
        objects.iter().any(|one| {
            one["kind"] == "ValidatingAdmissionPolicyBinding"
                && one["spec"]["policyName"] == policy["metadata"]["name"]
                && one["spec"]["validationActions"] == json!(["Deny"])
                && one["spec"].get("matchResources").is_none()
        })
    };
    let account = json!(format!("request.userInfo.username == '{ACCOUNT}'"));
    let has = |list: &Value, what: &str| list.as_array().unwrap().iter().any(|one| one == what);
    let policies = objects.iter().filter(|one| one["kind"] == "ValidatingAdmissionPolicy");
    policies.filter(|policy| is_bound(policy)).any(|policy| {
        let spec = &policy["spec"];
        let [condition] = &spec["matchConditions"].as_array().unwrap()[..] else { return false };
        let rules = spec["matchConstraints"]["resourceRules"].as_array().unwrap();
        spec["failurePolicy"] == "Fail"
            && condition["expression"] == account
            && rules.iter().any(|rule| {
                has(&rule["apiGroups"], &right.group)
                    && has(&rule["resources"], &right.resource)
                    && has(&rule["operations"], operation)
            })
    })
}

/// The writes that a role grants and no policy narrows.
fn left_open(role: &BTreeSet<Right>, policies: &[Value]) -> Vec<String> {
    let open = role.iter().filter(|right| !QUESTIONS.contains(&&*right.resource));
    let open = open.filter(|right| {
        operation(right).is_some_and(|operation| !is_narrowed(policies, operation, right))
    });
    open.map(ToString::to_string).collect()
}

#[test]
fn no_write_that_a_role_grants_to_the_agents_account_is_left_open_for_other_nodes() {
    let policies = manifest("own-node");
    for (file, role) in
        [("companion-mode", "winddown:companion"), ("cluster-mode", "winddown:cluster")]
    {
        let rights = granted(&manifest(file), role);
        assert!(rights.iter().any(|right| operation(right).is_some()), "{role}");
        assert_eq!(left_open(&rights, &policies), Vec::<String>::new(), "{role}");
    }
}

#[test]
fn a_write_that_no_policy_narrows_is_found() {
    let policies = manifest("own-node");
    let gained = [
        Right::new("patch", "", "secrets", ""),
        Right::new("create", "", "pods/binding", ""),
        Right::new("deletecollection", "", "pods/eviction", ""),
        Right::new("get", "", "pods/exec", ""),
    ];
    for right in gained {
        let open = left_open(&BTreeSet::from([right.clone()]), &policies);
        assert_eq!(open, [right.to_string()]);
    }
    // Without its binding a policy narrows nothing.
    let mut unbound = policies;
    unbound.retain(|one| one["kind"] != "ValidatingAdmissionPolicyBinding");
    let delete = Right::new("delete", "", "pods", "");
    assert_eq!(left_open(&BTreeSet::from([delete]), &unbound), ["delete pods"]);
}
