//! The events about what does not exist, and what its absence means for the pod.

use super::*;

#[test]
fn a_missing_object_is_skipped_where_it_is_optional_and_ends_it_where_it_is_not() {
    for (kind, name) in [(ObjectKind::ConfigMap, "configMapRef"), (ObjectKind::Secret, "secretRef")]
    {
        let (upper, lower) = (kind.as_str(), kind.lower());
        let from = json!([
            {name: {"name": "nope", "optional": true}},
            {name: {"name": "must", "optional": false}},
            {name: {"name": "never looked at"}},
        ]);
        let (outcome, told_of) = Api::default().resolve(&json!([]), &from);
        let Err(ReferenceProblem::Missing { key, version: None, is_for_volume: false, message }) =
            outcome
        else {
            panic!()
        };
        assert_eq!((key.kind, &*key.name), (kind, "must"));
        assert_eq!(message, format!("{lower} \"must\" not found"));
        let optional = format!("Optional{upper}NotFound");
        let mandatory = format!("Mandatory{upper}NotFound");
        let not_found = |name: &str| format!("{lower} {name:?} not found");
        let expected = [told(&optional, &not_found("nope")), told(&mandatory, &not_found("must"))];
        assert_eq!(told_of, expected);
    }
}

#[test]
fn a_missing_object_of_one_variable_is_told_with_the_variable() {
    let cases: [(ObjectKind, KeyRef); 2] =
        [(ObjectKind::ConfigMap, map_key), (ObjectKind::Secret, secret_key)];
    for (kind, reference) in cases {
        let (upper, lower) = (kind.as_str(), kind.lower());
        let env = json!([{"name": "A", "value": "1"}, reference("FOO", "nope", "k", true)]);
        let (outcome, told_of) = Api::default().resolve(&env, &json!([]));
        assert_eq!(outcome.unwrap(), pairs(&[("A", "1")]));
        let message = format!("skipping optional envvar \"FOO\": {lower} \"nope\" not found");
        assert_eq!(told_of, [told(&format!("Optional{upper}NotFound"), &message)]);

        let env = json!([reference("FOO", "nope", "k", false)]);
        let (outcome, told_of) = Api::default().resolve(&env, &json!([]));
        assert!(matches!(outcome, Err(ReferenceProblem::Missing { version: None, .. })));
        let message = format!("{lower} \"nope\" not found");
        assert_eq!(told_of, [told(&format!("Mandatory{upper}NotFound"), &message)]);
    }
}

#[test]
fn a_missing_key_is_skipped_where_it_is_optional_and_ends_it_where_it_is_not() {
    let api = Api::default().map("m", &[("other", "1")]).secret("s", &[("other", "1")]);
    let cases: [(ObjectKind, &str, KeyRef); 2] =
        [(ObjectKind::ConfigMap, "m", map_key), (ObjectKind::Secret, "s", secret_key)];
    for (kind, name, reference) in cases {
        let (upper, lower) = (kind.as_str(), kind.lower());
        let lacks = format!("key \"k\" does not exist in {lower} {name:?}");
        let (outcome, told_of) =
            api.resolve(&json!([reference("FOO", name, "k", true)]), &json!([]));
        assert_eq!(outcome.unwrap(), []);
        let message = format!("skipping optional envvar \"FOO\": {lacks}");
        assert_eq!(told_of, [told(&format!("Optional{upper}KeyNotFound"), &message)]);

        let (outcome, told_of) =
            api.resolve(&json!([reference("FOO", name, "k", false)]), &json!([]));
        let Err(ReferenceProblem::Missing { message, .. }) = outcome else { panic!() };
        let expected = format!("couldn't find key k in {upper} shop/{name}");
        assert_eq!(message, expected);
        assert_eq!(told_of, [told(&format!("Mandatory{upper}KeyNotFound"), &lacks)]);
    }
}

/// Variables are resolved once: one left out because of an outage would be missing for good.
#[test]
fn an_object_that_cannot_be_read_is_told_and_is_waited_for_even_if_it_is_optional() {
    for (kind, of, name, key_of) in [
        (ObjectKind::ConfigMap, "configMapRef", "m", map_key as KeyRef),
        (ObjectKind::Secret, "secretRef", "s", secret_key),
    ] {
        let (upper, lower) = (kind.as_str(), kind.lower());
        let api = Api::default().down(kind, name);
        let read = format!("failed to read {lower} {name:?}");
        for (optional, who) in [(true, "Optional"), (false, "Mandatory")] {
            let from = json!([{of: {"name": name, "optional": optional}}]);
            let env = json!([key_of("FOO", name, "k", optional)]);
            for (env, from) in [(json!([]), from), (env, json!([]))] {
                let (outcome, told_of) = api.resolve(&env, &from);
                let Err(ReferenceProblem::Unreadable { message, .. }) = outcome else { panic!() };
                assert_eq!(message, format!("{read}: connection refused"));
                assert_eq!(told_of, [told(&format!("FailedToRead{who}{upper}"), &read)]);
            }
        }
    }
}
