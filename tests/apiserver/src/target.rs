//! The target of a request: its parsed path and query.

use crate::kinds::{self, Kind};

/// An object, a list, or a subresource.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: &'static Kind,
    /// `None` for all namespaces, or if the kind has none.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// Parses `/api/v1/…` and `/apis/GROUP/VERSION/…`.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').map(decode);
        let (group, version) = match parts.next()?.as_str() {
            "api" => (String::new(), parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<String> = parts.collect();
        Self::of_parts(&group, &version, &rest)
    }

    fn of_parts(group: &str, version: &str, rest: &[String]) -> Option<Self> {
        let aimed = |plural: &String, namespace: Option<&String>, tail: &[String]| {
            let kind = kinds::served(group, version, plural)?;
            if namespace.is_some() != kind.namespaced && (namespace.is_some() || !tail.is_empty()) {
                return None;
            }
            Some(Self {
                kind,
                namespace: namespace.cloned(),
                name: tail.first().cloned(),
                subresource: (tail.len() > 1).then(|| tail[1..].join("/")),
            })
        };
        match rest {
            // `namespaces/NAME` and its subresources refer to the namespace itself.
            [word, namespace, plural, tail @ ..]
                if word == "namespaces" && plural != "status" && plural != "finalize" =>
            {
                aimed(plural, Some(namespace), tail)
            }
            [plural, tail @ ..] => aimed(plural, None, tail),
            [] => None,
        }
    }

    /// Parses a full path, or `pods/default/web`, `nodes/n1`, `leases.coordination.k8s.io/ns/n1`.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return Self::of_path(text);
        }
        let mut parts = text.split('/');
        let kind = kinds::called(parts.next()?)?;
        let mut target = Self { kind, namespace: None, name: None, subresource: None };
        if kind.namespaced {
            target.namespace = parts.next().map(str::to_owned);
        }
        target.name = parts.next().map(str::to_owned);
        target.subresource = parts.next().map(str::to_owned);
        Some(target)
    }
}

/// The query parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// The value, unless it is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// Whether the effects of the request must not be stored.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.get("dryRun").is_some()
    }
}

/// Decodes percent-encoding.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                match (char::from(*high).to_digit(16), char::from(*low).to_digit(16)) {
                    (Some(high), Some(low)) => {
                        bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                        rest = after;
                    }
                    _ => {
                        bytes.push(b'%');
                        rest = tail;
                    }
                }
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
