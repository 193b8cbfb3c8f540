//! Names of images, as the kubelet reads them.

/// Why `name` is no name of an image, in the words of the kubelet's library (`distribution/reference`); none if it is one.
pub(super) fn fault(name: &str) -> Option<String> {
    let is_id = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if name.len() == 64 && name.bytes().all(is_id) {
        let why = "cannot specify 64-byte hexadecimal strings";
        return Some(format!("invalid repository name ({name}), {why}"));
    }
    let (domain, rest) = match name.split_once('/') {
        Some((first, rest)) if names_domain(first) => (first, rest),
        _ => ("docker.io", name),
    };
    let remote = rest.split(':').next().unwrap_or_default();
    let is_official = domain == "docker.io" && !rest.contains('/');
    let remote = if is_official { format!("library/{remote}") } else { remote.to_owned() };
    if remote.to_lowercase() != remote {
        let why = "must be lowercase";
        return Some(format!("invalid reference format: repository name ({remote}) {why}"));
    }
    let (named, digest) = rest.split_once('@').map_or((rest, None), |(a, b)| (a, Some(b)));
    let (path, tag) = named.split_once(':').map_or((named, None), |(a, b)| (a, Some(b)));
    let is_path = path.split('/').all(is_component);
    // What looks like a registry and is none may be a part of the path.
    let is_name = is_path && (is_domain(domain) || is_component(domain));
    if !is_name || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return Some("invalid reference format".to_owned());
    }
    if path.len() > 255 {
        return Some("repository name must not be more than 255 characters".to_owned());
    }
    digest.and_then(fault_of_digest).map(str::to_owned)
}

/// Whether what is before the first slash is a registry, and not a part of the path.
fn names_domain(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first
}

fn is_domain(domain: &str) -> bool {
    let is_port = |text: &str| {
        let port = text.strip_prefix(':').unwrap_or_default();
        text.is_empty() || !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
    };
    if let Some((ip, port)) = domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_ip = ip.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        return !ip.is_empty() && is_ip && is_port(port);
    }
    let (host, port) = domain.split_at(domain.find(':').unwrap_or(domain.len()));
    let is_part = |part: &str| {
        let is_edge = |c: char| c.is_ascii_alphanumeric();
        let is_inner = |c: char| is_edge(c) || c == '-';
        part.starts_with(is_edge) && part.ends_with(is_edge) && part.chars().all(is_inner)
    };
    host.split('.').all(is_part) && is_port(port)
}

fn is_component(part: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator =
        |run: &str| matches!(run, "." | "_" | "__") || run.bytes().all(|b| b == b'-');
    part.starts_with(is_letter)
        && part.ends_with(is_letter)
        && part.split(is_letter).all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128
        && tag.starts_with(is_word)
        && tag.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, encoded)) = digest.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && encoded.len() >= 32
        && encoded.bytes().all(|b| b.is_ascii_hexdigit())
}

fn fault_of_digest(digest: &str) -> Option<&'static str> {
    let (algorithm, encoded) = digest.split_once(':')?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Some("unsupported digest algorithm"),
    };
    if encoded.len() != length {
        return Some("invalid checksum digest length");
    }
    let is_upper = encoded.bytes().any(|b| b.is_ascii_uppercase());
    is_upper.then_some("invalid checksum digest format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_those_that_a_kubelet_pulls() {
        let hex = "0123456789abcdef".repeat(4);
        let digest = format!("app@sha256:{hex}");
        let both = format!("registry.example:5000/shop/app:1.2@sha256:{hex}");
        let long = format!("{}/app", "a".repeat(250));
        for name in [
            "app",
            "app:1",
            "app:V1.2-rc_3",
            "shop/app",
            "Registry/app",
            "my_registry.local/app:1",
            "foo_bar.v1/app",
            "localhost/app",
            "localhost:5000/app:1",
            "127.0.0.1/a/b/c",
            "[::1]:5000/app",
            "a-host.example.COM:443/shop__x/app--y.z_1",
            &digest,
            &both,
            &long,
        ] {
            assert_eq!(fault(name), None, "{name}");
        }
    }

    #[test]
    fn what_is_no_name_is_told_in_the_kubelets_words() {
        let format = "invalid reference format";
        let lower = |part: &str| format!("{format}: repository name ({part}) must be lowercase");
        let hex = "0123456789abcdef".repeat(4);
        let of_hex =
            format!("invalid repository name ({hex}), cannot specify 64-byte hexadecimal strings");
        let digest = |digest: &str| format!("app@{digest}");
        for (name, why) in [
            ("", format),
            ("App", &lower("library/App")),
            ("Shop/App", &lower("App")),
            ("shop/App:1", &lower("shop/App")),
            ("a//b", format),
            ("/app", format),
            ("app/", format),
            ("app:", format),
            ("app:-1", format),
            (&format!("app:{}", "a".repeat(129)), format),
            ("my app", format),
            ("-a/app", format),
            ("a___b", format),
            ("a.-b", format),
            ("host.:1/app", format),
            ("host:a/app", format),
            ("my_registry:5000/app", format),
            ("https://registry.example/app", format),
            (&digest("sha256:abc"), format),
            (&digest(&hex), format),
            (&digest(&format!("sha256:{}", &hex[..63])), "invalid checksum digest length"),
            (&digest(&format!("md5:{hex}")), "unsupported digest algorithm"),
            (&digest(&format!("sha256:{}", hex.to_uppercase())), "invalid checksum digest format"),
            (&hex, &of_hex),
            (
                &format!("{}a", "a/".repeat(128)),
                "repository name must not be more than 255 characters",
            ),
        ] {
            assert_eq!(fault(name).as_deref(), Some(why), "{name:?}");
        }
    }
}
