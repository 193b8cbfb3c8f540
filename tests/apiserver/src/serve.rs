//! Serves a request: authenticates it, applies faults, carries it out and answers.

mod ask;
mod call;
mod discovery;
mod read;
mod watch;
mod write;

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CONTENT_TYPE, DATE, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::call::Call;
use crate::access::User;
use crate::clock;
use crate::control;
use crate::core::{Core, Shared};
use crate::fault::Harm;
use crate::refusal::Refusal;
use crate::restriction;
use crate::target::Target;

/// The body of an answer: complete, or the events of a watch.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The request is aborted without an answer.
#[derive(Debug, thiserror::Error)]
#[error("broken off as the test asked")]
pub(crate) struct BrokenOff;

/// The connection that a request arrived on.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) certificate: Option<Arc<[u8]>>,
    /// Closes the connection when cancelled.
    pub(crate) close: CancellationToken,
}

/// The result of a request.
enum Reply {
    Object(u16, Arc<Value>),
    Text(&'static str),
    Watch(watch::Watcher),
}

/// Serves one request.
pub(crate) async fn serve<B>(
    shared: Arc<Shared>,
    connection: Connection,
    request: Request<B>,
) -> Result<Response<Body>, BrokenOff>
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut call = match Call::read(request).await {
        Ok(call) => call,
        Err(refusal) => return Ok(refused(&shared, &refusal)),
    };
    if let Some(response) = control::over_http(&shared, &call.path, &call.method, &call.body) {
        return Ok(response);
    }
    let (number, user, met) = enter(&shared, &connection, &call);
    let (fault, harms) = met.unwrap_or_default();
    let (mut stale, mut answer) = (None, None);
    for harm in &harms {
        match harm {
            Harm::DelayMillis(millis) => tokio::time::sleep(Duration::from_millis(*millis)).await,
            Harm::Hang => pending::<()>().await,
            Harm::Hold => shared.until_lifted(fault).await,
            Harm::Reset => return Err(BrokenOff),
            Harm::Close => {
                connection.close.cancel();
                pending::<()>().await;
            }
            Harm::Answer { code, reason, retry_after } => {
                answer = Some(scripted(*code, reason, *retry_after));
                break;
            }
            Harm::Stale(version) => stale = Some(*version),
            Harm::Ignore => call.right.verb = "get".to_owned(),
            Harm::Lack(field) => {
                call.body["status"].as_object_mut().map(|status| status.remove(field));
            }
            // These apply after the request.
            Harm::DelayAnswerMillis(_)
            | Harm::HangAfter
            | Harm::HoldAnswer
            | Harm::LoseAnswer
            | Harm::Garble
            | Harm::Endless => {}
        }
    }
    let reply = match answer {
        Some(refusal) => Err(refusal),
        None => user
            .ok_or_else(Refusal::unauthorized)
            .and_then(|user| carry_out(&shared, &call, &user, stale)),
    };
    let mut response = match reply {
        Ok(reply) => answered(&shared, reply),
        Err(refusal) => refused(&shared, &refusal),
    };
    for harm in &harms {
        go_wrong_after(&shared, &connection, fault, harm, &mut response).await;
    }
    finish(&shared, number, response.status().as_u16());
    Ok(response)
}

/// Applies the faults that act after the request was carried out.
async fn go_wrong_after(
    shared: &Shared,
    connection: &Connection,
    fault: u64,
    harm: &Harm,
    response: &mut Response<Body>,
) {
    match harm {
        Harm::DelayAnswerMillis(millis) => {
            tokio::time::sleep(Duration::from_millis(*millis)).await;
        }
        Harm::HangAfter => pending().await,
        Harm::HoldAnswer => shared.until_lifted(fault).await,
        Harm::LoseAnswer => {
            connection.close.cancel();
            pending::<()>().await;
        }
        Harm::Garble => *response.body_mut() = whole("<html>upstream connect error</html>"),
        Harm::Endless => *response.body_mut() = endless(),
        _ => {}
    }
}

/// A fault that matches a request: its number, and what goes wrong.
type Met = (u64, Vec<Harm>);

/// Adds the request to the journal, and determines its user and its fault.
fn enter(
    shared: &Shared,
    connection: &Connection,
    call: &Call,
) -> (u64, Option<User>, Option<Met>) {
    shared.with(|core| {
        let now = core.clock.now();
        let certificate = connection.certificate.as_deref();
        let user = core.access.user(certificate, call.token.as_deref(), now);
        let mut entry = call.entry(user.as_ref());
        let met = core.faults.met_by(&entry.right);
        if let Some((_, harms)) = &met {
            let words: Vec<String> = harms.iter().map(ToString::to_string).collect();
            entry.fault = Some(words.join(", "));
        }
        (core.enter(entry), user, met)
    })
}

fn finish(shared: &Shared, number: u64, code: u16) {
    shared.with(|core| core.amend(number, |request| request.code = Some(code)));
    shared.touch();
}

fn carry_out(
    shared: &Arc<Shared>,
    call: &Call,
    user: &User,
    stale: Option<u64>,
) -> Result<Reply, Refusal> {
    let minor = shared.with(|core| core.minor);
    let Some(target) = call.target.as_ref().filter(|target| target.kind.since <= minor) else {
        return discovery::answer(&call.path, minor).ok_or_else(Refusal::no_such_path);
    };
    shared.with(|core| check(core, call, target, user))?;
    match call.right.verb.as_str() {
        "watch" => Ok(Reply::Watch(watch::Watcher::begin(shared, target, call)?)),
        "get" => shared
            .with(|core| read::get(core, target))
            .map(|reply| read::shown(reply, call.metadata_only)),
        "list" => shared
            .with(|core| read::list(core, target, &call.query, stale))
            .map(|reply| read::shown(reply, call.metadata_only)),
        _ => shared.with(|core| {
            if let Some(reply) = ask::answer(core, target, call, user) {
                return reply;
            }
            let node = restriction::node_of(user).filter(|_| core.nodes_restricted);
            write::carry_out(core, target, call, node)
        }),
    }
}

/// Checks whether this user may make this request at all.
fn check(core: &Core, call: &Call, target: &Target, user: &User) -> Result<(), Refusal> {
    let right = &call.right;
    if !core.access.may(right) && !right.resource.starts_with("selfsubject") {
        return Err(call.forbidden(user, ""));
    }
    let Some(node) = restriction::node_of(user).filter(|_| core.nodes_restricted) else {
        return Ok(());
    };
    restriction::may(&core.store, node, right, target, &call.query)
        .map_err(|why| call.forbidden(user, &why))?;
    restriction::admit_write(&core.store, node, right, target, &call.body)
        .map_err(|why| Refusal::forbidden(target.kind, &right.name, &why))
}

fn answered(shared: &Shared, reply: Reply) -> Response<Body> {
    match reply {
        Reply::Object(code, object) => json(shared, code, &object),
        Reply::Text(text) => {
            let mut response = json(shared, 200, &Value::Null);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            *response.body_mut() = whole(text);
            response
        }
        Reply::Watch(watcher) => {
            let mut response = json(shared, 200, &Value::Null);
            *response.body_mut() = watcher.into_body();
            response
        }
    }
}

fn refused(shared: &Shared, refusal: &Refusal) -> Response<Body> {
    let mut response = json(shared, refusal.code, &refusal.status());
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A JSON answer, with the date of the server's clock.
pub(crate) fn json(shared: &Shared, code: u16, object: &Value) -> Response<Body> {
    let mut response = Response::new(whole(object.to_string()));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let date = clock::http_date(shared.with(|core| core.clock.now()));
    if let Ok(date) = HeaderValue::from_str(&date) {
        headers.insert(DATE, date);
    }
    response
}

/// An object with a text in it that never ends.
fn endless() -> Body {
    let begin = Bytes::from_static(b"{\"kind\": \"");
    let more = Bytes::from(vec![b'x'; 1 << 20]);
    let parts = std::iter::once(begin).chain(std::iter::repeat(more));
    StreamBody::new(stream::iter(parts.map(|part| Ok(Frame::data(part))))).boxed_unsync()
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

fn scripted(code: u16, reason: &str, retry_after: Option<u32>) -> Refusal {
    let usual = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let reason = if reason.is_empty() { usual } else { reason };
    let refusal = Refusal::new(code, reason, format!("scripted failure {code}"));
    match retry_after {
        Some(seconds) => refusal.after(seconds),
        None => refusal,
    }
}
