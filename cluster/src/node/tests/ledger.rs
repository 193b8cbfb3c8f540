//! An API server that is a function: nodes and leases, without sockets or a clock.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

#[derive(Clone)]
pub(super) struct Ledger(Arc<Mutex<State>>);

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: Instant,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Value,
}

/// What happens to a request instead of an answer.
#[derive(Clone, Debug)]
pub(super) enum Mishap {
    Refuse(u16, Value),
    Hang,
    Late(Duration),
}

type Script = Box<dyn FnMut(&Entry) -> Option<Mishap> + Send>;

struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    uids: u64,
    journal: Vec<Entry>,
    script: Script,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            version: 0,
            uids: 0,
            journal: Vec::new(),
            script: Box::new(|_| None),
        })))
    }

    pub(super) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    pub(super) fn script(&self, script: impl FnMut(&Entry) -> Option<Mishap> + Send + 'static) {
        self.lock().script = Box::new(script);
    }

    pub(super) fn put(&self, path: &str, object: Value) -> Value {
        self.lock().store(path, object)
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    pub(super) fn node(&self) -> Value {
        self.get("/api/v1/nodes/n1").unwrap_or_default()
    }

    pub(super) fn condition(&self, kind: &str) -> Value {
        let node = self.node();
        let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
    }

    /// Changes the node as another client would.
    pub(super) fn edit(&self, patch: &Value) {
        let mut state = self.lock();
        let mut node = state.objects["/api/v1/nodes/n1"].clone();
        merge(&mut node, patch);
        state.store("/api/v1/nodes/n1", node);
    }

    /// Goes back to an earlier state of the node, and to the versions of then.
    pub(super) fn restore(&self, node: &Value) {
        let mut state = self.lock();
        state.version = node["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        state.objects.insert("/api/v1/nodes/n1".to_owned(), node.clone());
    }

    pub(super) fn remove(&self, path: &str) {
        self.lock().objects.remove(path);
    }

    /// Requests with this method whose path ends like this.
    pub(super) fn sent(&self, method: &Method, path_end: &str) -> Vec<Entry> {
        let state = self.lock();
        let journal = state.journal.iter();
        journal
            .filter(|entry| entry.method == *method && entry.path.ends_with(path_end))
            .cloned()
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let entry = Entry {
            at: Instant::now(),
            method: parts.method,
            path: parts.uri.path().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let watching = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let mishap = {
            let mut state = self.lock();
            state.journal.push(entry.clone());
            (state.script)(&entry)
        };
        match mishap {
            Some(Mishap::Refuse(code, status)) => return reply(code, &status),
            Some(Mishap::Late(time)) => tokio::time::sleep(time).await,
            None if !watching => {}
            Some(Mishap::Hang) | None => std::future::pending().await,
        }
        let (code, body) = self.lock().carry_out(&entry);
        reply(code, &body)
    }
}

impl State {
    fn carry_out(&mut self, entry: &Entry) -> (u16, Value) {
        let path = entry.path.trim_end_matches("/status").to_owned();
        if path == "/api/v1/nodes" && entry.method == Method::GET {
            let items: Vec<_> =
                self.objects.iter().filter(|(at, _)| at.starts_with(&path)).map(|o| o.1).collect();
            let list = json!({ "metadata": { "resourceVersion": "1" }, "items": items });
            return (200, list);
        }
        if entry.method == Method::POST {
            let path = format!("{path}/{}", entry.body["metadata"]["name"].as_str().unwrap());
            if self.objects.contains_key(&path) {
                return (409, json!({ "code": 409, "reason": "AlreadyExists" }));
            }
            return (201, self.store(&path, entry.body.clone()));
        }
        let Some(mut object) = self.objects.get(&path).cloned() else {
            return (404, json!({ "code": 404, "reason": "NotFound", "message": "not found" }));
        };
        let meta = &entry.body["metadata"];
        for (field, has) in [
            ("uid", &object["metadata"]["uid"]),
            ("resourceVersion", &object["metadata"]["resourceVersion"]),
        ] {
            if !meta[field].is_null() && meta[field] != *has {
                let message = format!("Precondition failed: {field}");
                let message = if field == "uid" { "UID in precondition" } else { &message };
                let refusal = json!({ "code": 409, "reason": "Conflict", "message": message });
                return (409, refusal);
            }
        }
        match entry.method {
            Method::GET => return (200, object),
            Method::DELETE => {
                self.objects.remove(&path);
                return (200, json!({ "kind": "Status", "status": "Success", "code": 200 }));
            }
            Method::PUT => object = entry.body.clone(),
            _ => merge(&mut object, &entry.body),
        }
        (200, self.store(&path, object))
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        if object["metadata"]["uid"].is_null() {
            self.uids += 1;
            object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
            object["metadata"]["creationTimestamp"] = "2026-11-20T00:00:00Z".into();
        }
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

/// A strategic merge, as far as nodes need one: maps, conditions and addresses by type.
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => {
                into.as_object_mut().unwrap().remove(name);
            }
            Value::Array(items) if name == "conditions" || name == "addresses" => {
                into[name] = by_type(&into[name], items);
            }
            other => merge(&mut into[name], other),
        }
    }
}

fn by_type(has: &Value, items: &[Value]) -> Value {
    let replaces = items.iter().any(|item| item["$patch"] == "replace");
    if replaces {
        return items.iter().filter(|item| item["$patch"].is_null()).cloned().collect();
    }
    let mut list = has.as_array().cloned().unwrap_or_default();
    for item in items {
        let at = list.iter().position(|old| old["type"] == item["type"]);
        match (at, item["$patch"] == "delete") {
            (Some(at), true) => {
                list.remove(at);
            }
            (Some(at), false) => merge(&mut list[at], item),
            (None, true) => {}
            (None, false) => list.push(item.clone()),
        }
    }
    list.into()
}

fn reply(code: u16, body: &Value) -> Response<Body> {
    let bytes = serde_json::to_vec(body).unwrap();
    Response::builder().status(code).body(Body::from(bytes)).unwrap()
}

impl tower_service::Service<Request<Body>> for Ledger {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let ledger = self.clone();
        Box::pin(async move { Ok(ledger.answer(request).await) })
    }
}
