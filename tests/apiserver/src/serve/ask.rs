//! POST requests that return something without storing it: tokens and reviews. Certificate requests are stored too.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Reply;
use super::call::Call;
use crate::access::User;
use crate::clock;
use crate::core::Core;
use crate::kinds;
use crate::refusal::Refusal;
use crate::request::Right;
use crate::signing;
use crate::store::Key;
use crate::target::Target;
use crate::write::{fields_of, text};

/// Answers the request. `None` if it is for an object that is stored.
pub(super) fn answer(
    core: &mut Core,
    target: &Target,
    call: &Call,
    user: &User,
) -> Option<Result<Reply, Refusal>> {
    let reply = match (call.right.verb.as_str(), target.kind.plural, target.subresource.as_deref())
    {
        ("create", "serviceaccounts", Some("token")) => token(core, target, &call.body),
        ("create", "selfsubjectaccessreviews" | "subjectaccessreviews", None) => {
            Ok(review(core, &call.body))
        }
        ("create", "tokenreviews", None) => Ok(whose_token(core, &call.body)),
        ("create", "selfsubjectreviews", None) => {
            Ok(with_status(&call.body, json!({"userInfo": user.info()})))
        }
        ("create", "certificatesigningrequests", None) => certificate(core, target, call, user),
        _ => return None,
    };
    Some(reply.map(|object| Reply::Object(201, Arc::new(object))))
}

fn token(core: &mut Core, target: &Target, body: &Value) -> Result<Value, Refusal> {
    let name = target.name.as_deref().unwrap_or_default();
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let key = Key::new(target.kind, Some(namespace), name);
    // Every namespace has this account, which a controller creates in a real cluster.
    if core.store.get(&key).is_none() && name != "default" {
        return Err(Refusal::not_found(target.kind, name));
    }
    let seconds = body.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    if seconds < 600 {
        let (field, why) =
            ("spec.expirationSeconds", "may not specify a duration less than 10 minutes");
        return Err(Refusal::invalid(target.kind, name, field, "FieldValueInvalid", why));
    }
    if let Some(bound) = body.pointer("/spec/boundObjectRef").filter(|b| !b.is_null()) {
        check_bound(core, namespace, bound)?;
    }
    let until = clock::moved(core.clock.now(), seconds);
    let user = User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
    };
    let token = core.access.new_token(user, Some(until));
    let mut answer = body.clone();
    let spec = fields_of(fields_of(&mut answer).entry("spec").or_insert(Value::Null));
    spec.insert("expirationSeconds".to_owned(), json!(seconds));
    Ok(with_status(&answer, json!({"token": token, "expirationTimestamp": clock::seconds(until)})))
}

/// Stores a certificate request and, if so configured, signs it at once: the answer is the request as it was stored,
/// and a watch or a GET shows the certificate.
fn certificate(
    core: &mut Core,
    target: &Target,
    call: &Call,
    user: &User,
) -> Result<Value, Refusal> {
    let mut object = call.written()?.clone();
    let spec = fields_of(fields_of(&mut object).entry("spec").or_insert(Value::Null));
    spec.insert("username".to_owned(), json!(user.name));
    spec.insert("groups".to_owned(), json!(user.groups));
    let kept = core.writer().create(target, object)?;
    if let Some(lifetime) = core.sign_for {
        signing::sign(core, text(&kept, "/metadata/name"), lifetime);
    }
    Ok(Value::clone(&kept))
}

/// Checks that the pod (or other object) to which a token is bound exists and has the right UID.
fn check_bound(core: &Core, namespace: &str, bound: &Value) -> Result<(), Refusal> {
    let Some(kind) = kinds::of_object(bound) else { return Ok(()) };
    let name = text(bound, "/name");
    let key = Key::new(kind, kind.namespaced.then_some(namespace), name);
    let object = core.store.get(&key).ok_or_else(|| Refusal::not_found(kind, name))?;
    let (wanted, stored) = (text(bound, "/uid"), text(object, "/metadata/uid"));
    if !wanted.is_empty() && wanted != stored {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(Refusal::conflict(kind, name, &why));
    }
    Ok(())
}

fn review(core: &Core, body: &Value) -> Value {
    let at = |field: &str| text(body, &format!("/spec/resourceAttributes/{field}")).to_owned();
    let right = Right {
        verb: at("verb"),
        group: at("group"),
        resource: at("resource"),
        subresource: at("subresource"),
        namespace: at("namespace"),
        name: at("name"),
    };
    with_status(body, json!({"allowed": core.access.may(&right)}))
}

fn whose_token(core: &Core, body: &Value) -> Value {
    let user = core.access.user(None, Some(text(body, "/spec/token")), core.clock.now());
    let status = match user {
        Some(user) => json!({"authenticated": true, "user": user.info()}),
        None => json!({"authenticated": false}),
    };
    with_status(body, status)
}

fn with_status(body: &Value, status: Value) -> Value {
    let mut object = body.clone();
    let fields = fields_of(&mut object);
    fields.entry("metadata").or_insert(json!({}));
    fields.insert("status".to_owned(), status);
    object
}
