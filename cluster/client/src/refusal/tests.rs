use serde_json::json;

use super::*;

fn error(status: serde_json::Value) -> kube::Error {
    kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
}

#[test]
fn every_answer_has_one_meaning() {
    let busy = |seconds| Refusal::Busy { after: Some(Duration::from_secs(seconds)) };
    let table = [
        (json!({"code": 404, "reason": "NotFound"}), Refusal::NotFound),
        (json!({"code": 404, "message": "404 page not found"}), Refusal::NoAnswer),
        (json!({"code": 404, "message": "<html>404 Not Found</html>"}), Refusal::NoAnswer),
        (json!({"code": 409, "reason": "AlreadyExists"}), Refusal::AlreadyExists),
        (
            json!({"code": 409, "reason": "Conflict", "message": "the object has been modified"}),
            Refusal::Conflict,
        ),
        (
            json!({"code": 409, "reason": "Conflict", "message":
                "Precondition failed: UID in precondition: a, UID in object meta: b"}),
            Refusal::OtherUid,
        ),
        (
            json!({"code": 409, "reason": "Conflict", "message":
                "the UID in the precondition (a) does not match the UID in record (b)"}),
            Refusal::OtherUid,
        ),
        (
            json!({"code": 422, "reason": "Invalid", "details": {"causes": [{"field": "metadata.uid"}]}}),
            Refusal::OtherUid,
        ),
        (json!({"code": 422, "reason": "Invalid"}), Refusal::Invalid),
        (json!({"code": 410, "reason": "Expired"}), Refusal::Expired),
        (json!({"code": 401, "reason": "Unauthorized"}), Refusal::NoAnswer),
        (json!({"code": 403, "reason": "Forbidden"}), Refusal::NotAllowed),
        (json!({"code": 429, "details": {"retryAfterSeconds": 3}}), busy(3)),
        (json!({"code": 500, "reason": "InternalError"}), Refusal::Busy { after: None }),
        (
            json!({"code": 500, "message": "This pod has more than one PodDisruptionBudget, which the \
                eviction subresource does not support."}),
            Refusal::Invalid,
        ),
        (json!({"code": 503, "details": {"retryAfterSeconds": 1}}), busy(1)),
    ];
    for (status, meaning) in table {
        assert_eq!(Refusal::of(&error(status.clone())), meaning, "{status}");
    }
    assert_eq!(Refusal::of(&kube::Error::TlsRequired), Refusal::NoAnswer);
}

#[test]
fn what_a_webhook_or_a_policy_denies_is_denied_whatever_its_code() {
    let hook = r#"admission webhook "db" denied the request: the primary stays"#;
    let policy = r#"pods "a" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'b' denied request: no"#;
    let mutating = "policy 'keep' with binding 'b' denied request: no such key: db";
    for code in [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503] {
        for (message, reason) in
            [(hook, "NotFound"), (hook, "AlreadyExists"), (policy, ""), (mutating, "Invalid")]
        {
            let status = json!({"code": code, "reason": reason, "message": message});
            assert_eq!(Refusal::of(&error(status)), Refusal::Denied, "{code} {message}");
        }
    }
    let down =
        r#"Internal error occurred: failed calling webhook "db": failed to call webhook: EOF"#;
    let kube::Error::Api(status) = error(json!({"code": 500, "message": down})) else { panic!() };
    assert!(misses_webhook(&status));
}

#[test]
fn an_error_is_said_in_the_servers_words_and_never_in_a_programmers() {
    #[derive(Debug, thiserror::Error)]
    #[error("the API server could not read the pod")]
    struct Refused(#[source] kube::Error);
    let answer = || error(json!({"code": 422, "reason": "Invalid", "message": "image: Required"}));
    let read = "the API server could not read the pod: image: Required";
    assert_eq!(chain(&Refused(answer())), read);
    assert_eq!(chain(&answer()), "image: Required");
    assert_eq!(chain(&watcher::Error::WatchStartFailed(answer())), "image: Required");
    let broken = || std::io::Error::other("cannot reach the API server");
    assert_eq!(chain(&kube::Error::Service(Box::new(broken()))), "cannot reach the API server");
    assert_eq!(chain(&broken()), "cannot reach the API server");
}

#[test]
fn an_object_that_is_missing_or_another_is_gone_and_a_conflict_is_not() {
    assert!(Refusal::NotFound.is_gone() && Refusal::OtherUid.is_gone());
    assert!(!Refusal::Conflict.is_gone());
    assert_eq!(Refusal::Busy { after: None }.retry_after(), None);
}
