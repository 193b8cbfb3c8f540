//! A parsed request.

use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use hyper::{HeaderMap, Method, Request};
use serde_json::Value;
use tokio::time::Instant;

use crate::access::User;
use crate::refusal::Refusal;
use crate::request::{self, Right};
use crate::target::{Query, Target};

/// The largest request body; the real server's limit.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// A parsed request.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    path_and_query: String,
    pub(super) query: Query,
    /// `None` if the path is not a resource.
    pub(super) target: Option<Target>,
    pub(super) right: Right,
    /// The body; `Null` if there is none or it is not JSON.
    pub(super) body: Value,
    body_is_bad: bool,
    pub(super) content_type: String,
    /// Whether the client wants `PartialObjectMetadata`: no spec, no data, no status.
    pub(super) metadata_only: bool,
    user_agent: String,
    pub(super) token: Option<String>,
    at: Instant,
}

impl Call {
    /// Reads and parses the whole request.
    pub(super) async fn read<B>(request: Request<B>) -> Result<Self, Refusal>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let at = Instant::now();
        let (parts, body) = request.into_parts();
        let bytes = Limited::new(body, MAX_BODY)
            .collect()
            .await
            .map_err(|e| match e.downcast::<http_body_util::LengthLimitError>() {
                Ok(_) => Refusal::new(413, "RequestEntityTooLarge", "Request entity too large"),
                Err(e) => Refusal::bad_request(format!("the body did not arrive: {e}")),
            })?
            .to_bytes();
        let parsed =
            if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
        let path = parts.uri.path().to_owned();
        let query = Query::of(parts.uri.query());
        let target = Target::of_path(&path);
        let right = right(&parts.method, &path, target.as_ref(), &query, parsed.as_ref().ok());
        let token = header(&parts.headers, AUTHORIZATION)
            .strip_prefix("Bearer ")
            .map(|token| token.trim().to_owned());
        Ok(Self {
            path_and_query: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            path,
            query,
            target,
            right,
            body_is_bad: parsed.is_err(),
            body: parsed.unwrap_or_default(),
            metadata_only: header(&parts.headers, ACCEPT).contains("as=PartialObjectMetadata"),
            content_type: header(&parts.headers, CONTENT_TYPE),
            user_agent: header(&parts.headers, USER_AGENT),
            token,
            method: parts.method,
            at,
        })
    }

    /// The body of a write.
    pub(super) fn written(&self) -> Result<&Value, Refusal> {
        if self.body_is_bad {
            return Err(Refusal::bad_request("the body of the request was not JSON"));
        }
        Ok(&self.body)
    }

    /// The journal entry for the request.
    pub(super) fn entry(&self, user: Option<&User>) -> request::Request {
        request::Request {
            at: self.at,
            user: user.map_or_else(|| User::anonymous().name, |user| user.name.clone()),
            right: self.right.clone(),
            path: self.path_and_query.clone(),
            content_type: self.content_type.clone(),
            user_agent: self.user_agent.clone(),
            body: self.body.clone(),
            code: None,
            fault: None,
            number: 0,
        }
    }

    pub(super) fn forbidden(&self, user: &User, detail: &str) -> Refusal {
        let right = &self.right;
        let mut why = format!(
            "User \"{}\" cannot {} resource \"{}\" in API group \"{}\"{}",
            user.name,
            right.verb,
            right.resource_and_sub(),
            right.group,
            if right.namespace.is_empty() {
                " at the cluster scope".to_owned()
            } else {
                format!(" in the namespace \"{}\"", right.namespace)
            }
        );
        if !detail.is_empty() {
            why = format!("{why}: {detail}");
        }
        match &self.target {
            Some(target) => Refusal::forbidden(target.kind, &right.name, &why),
            None => Refusal::new(403, "Forbidden", why),
        }
    }
}

fn header(headers: &HeaderMap, name: HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn right(
    method: &Method,
    path: &str,
    target: Option<&Target>,
    query: &Query,
    body: Option<&Value>,
) -> Right {
    let Some(target) = target else {
        return Right {
            verb: method.as_str().to_ascii_lowercase(),
            group: String::new(),
            resource: path.to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
        };
    };
    let verb = match (method.as_str(), &target.name) {
        ("GET", _) if query.is_true("watch") => "watch",
        ("GET", Some(_)) => "get",
        ("GET", None) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        (other, _) => other,
    };
    // Listing a single object by its name is what a rule with resourceNames allows.
    let selected = query
        .get("fieldSelector")
        .and_then(|fields| fields.strip_prefix("metadata.name="))
        .filter(|name| !name.contains(','));
    let namespace = match (&target.namespace, target.kind.plural, &target.name) {
        (Some(namespace), _, _) => namespace.clone(),
        (None, "namespaces", Some(name)) => name.clone(),
        _ => String::new(),
    };
    // For RBAC, a create has no name, but tests look for the object that it creates.
    let created = body
        .filter(|_| verb == "create" && target.name.is_none())
        .and_then(|body| body.pointer("/metadata/name"))
        .and_then(Value::as_str);
    Right {
        verb: verb.to_owned(),
        group: target.kind.group.to_owned(),
        resource: target.kind.plural.to_owned(),
        subresource: target.subresource.clone().unwrap_or_default(),
        namespace,
        name: target.name.as_deref().or(selected).or(created).unwrap_or_default().to_owned(),
    }
}
