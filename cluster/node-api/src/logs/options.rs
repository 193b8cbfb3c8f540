//! The options of a log request.

use hyper::StatusCode;
use winddown_host::pod_logs::LogOptions;
use winddown_shared::WallTime;

use crate::answer::FailureAnswer;

/// Parses the query of a request. Unknown options are ignored.
pub(crate) fn parse(query: &str, now: WallTime) -> Result<LogOptions, FailureAnswer> {
    let mut options = LogOptions::default();
    let (mut since_seconds, mut since_time) = (None, None);
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        // An empty value counts as absent, except for a flag.
        let given = Some(&*value).filter(|value| !value.is_empty());
        match &*key {
            "follow" => options.follow = is_set(&value),
            "previous" => options.previous = is_set(&value),
            "timestamps" => options.timestamps = is_set(&value),
            "tailLines" => options.tail_lines = number("tailLines", given, 0)?,
            "limitBytes" => options.limit_bytes = number("limitBytes", given, 1)?,
            "sinceSeconds" => since_seconds = number("sinceSeconds", given, 1)?,
            "sinceTime" => since_time = given.map(time).transpose()?,
            "stream" => options.stream = stream(given)?,
            _ => {}
        }
    }
    if since_seconds.is_some() && since_time.is_some() {
        return Err(invalid("sinceSeconds and sinceTime are mutually exclusive"));
    }
    if options.stream.is_some() && options.tail_lines.is_some() {
        return Err(invalid("tailLines is of all streams: leave stream out"));
    }
    let ago = since_seconds.and_then(|ago| i64::try_from(ago).ok());
    let ago = ago.map(|ago| now.checked_sub(jiff::SignedDuration::from_secs(ago)));
    options.since = since_time.or(ago.map(|at| at.unwrap_or(WallTime::MIN)));
    Ok(options)
}

fn is_set(value: &str) -> bool {
    !matches!(value, "false" | "0")
}

fn number(name: &str, value: Option<&str>, least: u64) -> Result<Option<u64>, FailureAnswer> {
    let Some(value) = value else { return Ok(None) };
    let number: i64 =
        value.parse().map_err(|_| bad_request(format!("{name}: {value:?} is no number")))?;
    match u64::try_from(number) {
        Ok(number) if number >= least => Ok(Some(number)),
        _ => Err(invalid(&format!("{name} must be at least {least}"))),
    }
}

fn time(text: &str) -> Result<WallTime, FailureAnswer> {
    text.parse().map_err(|_| bad_request(format!("sinceTime: {text:?} is not a time")))
}

fn stream(value: Option<&str>) -> Result<Option<&'static str>, FailureAnswer> {
    match value {
        None | Some("All") => Ok(None),
        Some("Stdout") => Ok(Some("stdout")),
        Some("Stderr") => Ok(Some("stderr")),
        Some(_) => Err(invalid("stream must be All, Stdout or Stderr")),
    }
}

fn bad_request(text: String) -> FailureAnswer {
    FailureAnswer { status: StatusCode::BAD_REQUEST, text }
}

fn invalid(text: &str) -> FailureAnswer {
    FailureAnswer { status: StatusCode::UNPROCESSABLE_ENTITY, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<LogOptions, u16> {
        parse(query, "2026-01-01T00:01:00Z".parse().unwrap())
            .map_err(|failure| failure.status.as_u16())
    }

    #[test]
    fn options_are_read_as_the_kubelet_reads_them() {
        let all = "follow=true&previous=1&timestamps=true&tailLines=0&limitBytes=9&sinceSeconds=60&other=x";
        let since = Some("2026-01-01T00:00:00Z".parse().unwrap());
        let wanted = LogOptions {
            follow: true,
            previous: true,
            timestamps: true,
            since,
            tail_lines: Some(0),
            limit_bytes: Some(9),
            stream: None,
        };
        assert_eq!(parsed(all), Ok(wanted));
        assert_eq!(parsed("sinceTime=2026-01-01T01%3A00%3A00%2B01%3A00").unwrap().since, since);
        assert_eq!(parsed("follow=false&tailLines=&stream=All"), Ok(LogOptions::default()));
        assert_eq!(parsed("stream=Stderr").unwrap().stream, Some("stderr"));
        assert_eq!(
            parsed(&format!("sinceSeconds={}", i64::MAX)).unwrap().since,
            Some(WallTime::MIN)
        );
    }

    #[test]
    fn what_is_wrong_is_refused_with_the_kubelets_code() {
        for (query, code) in [
            ("tailLines=x", 400),
            ("sinceTime=yesterday", 400),
            ("tailLines=-1", 422),
            ("limitBytes=0", 422),
            ("sinceSeconds=0", 422),
            ("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422),
            ("stream=stdin", 422),
            ("stream=Stdout&tailLines=1", 422),
        ] {
            assert_eq!(parsed(query), Err(code), "{query}");
        }
    }
}
