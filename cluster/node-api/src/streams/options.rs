//! The options of a stream request.

use winddown_host::{Stdio, StreamRequest};

use crate::route::StreamKind;

/// Parses the query of a request, with the kubelet's error messages.
pub(crate) fn read(kind: &StreamKind, query: &str) -> Result<StreamRequest, String> {
    let all = || form_urlencoded::parse(query.as_bytes());
    let of = |name: &'static str| all().filter(move |(key, _)| key == name).map(|(_, value)| value);
    let is_set = |name| of(name).next().is_some_and(|value| value == "1");
    let stdio = || {
        let [stdin, stdout, tty] = ["input", "output", "tty"].map(is_set);
        // A terminal has one output.
        let stderr = is_set("error") && !tty;
        if !(stdin || stdout || stderr) {
            return Err("you must specify at least 1 of stdin, stdout, stderr".to_owned());
        }
        Ok(Stdio { stdin, stdout, stderr, tty })
    };
    Ok(match kind {
        StreamKind::Exec(container) => {
            let command = of("command").map(String::from).collect();
            StreamRequest::Exec { container: container.clone(), command, stdio: stdio()? }
        }
        StreamKind::Attach(container) => {
            StreamRequest::Attach { container: container.clone(), stdio: stdio()? }
        }
        StreamKind::PortForward => {
            let ports: Result<Vec<_>, _> = of("port").map(|given| ports(&given)).collect();
            StreamRequest::PortForward { ports: ports?.concat() }
        }
    })
}

fn ports(given: &str) -> Result<Vec<u16>, String> {
    if given.is_empty() {
        return Err("query parameter \"port\" cannot be empty".to_owned());
    }
    let one = |port: &str| match port.parse() {
        Ok(0) => Err(format!("port {given:?} must be > 0")),
        Ok(port) => Ok(port),
        Err(error) => Err(format!("unable to parse {given:?} as a port: {error}")),
    };
    given.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_and_its_streams_are_read_as_the_kubelet_reads_them() {
        let kind = StreamKind::Exec("main".to_owned());
        let query = "command=sh&command=-c&command=echo+%22a+b%22&input=1&output=1&error=1";
        let wanted = |stderr, tty| StreamRequest::Exec {
            container: "main".to_owned(),
            command: ["sh", "-c", "echo \"a b\""].map(str::to_owned).to_vec(),
            stdio: Stdio { stdin: true, stdout: true, stderr, tty },
        };
        assert_eq!(read(&kind, query), Ok(wanted(true, false)));
        assert_eq!(read(&kind, &format!("{query}&tty=1")), Ok(wanted(false, true)));
        for nothing in ["command=ls", "command=ls&output=true", "command=ls&error=1&tty=1"] {
            let error = read(&kind, nothing).unwrap_err();
            assert_eq!(error, "you must specify at least 1 of stdin, stdout, stderr");
        }
        let kind = StreamKind::Attach("main".to_owned());
        let stdio = Stdio { stdout: true, ..Stdio::default() };
        let wanted = StreamRequest::Attach { container: "main".to_owned(), stdio };
        assert_eq!(read(&kind, "output=1"), Ok(wanted));
    }

    #[test]
    fn ports_are_read_as_the_kubelet_reads_them() {
        let ports = |query| read(&StreamKind::PortForward, query);
        let of = |ports: &[u16]| Ok(StreamRequest::PortForward { ports: ports.to_vec() });
        assert_eq!(ports(""), of(&[]));
        assert_eq!(ports("port=80&port=443,8080"), of(&[80, 443, 8080]));
        for (wrong, why) in [
            ("port=", "query parameter \"port\" cannot be empty"),
            ("port=0", "port \"0\" must be > 0"),
            ("port=65536", "unable to parse \"65536\" as a port: "),
            ("port=80,x", "unable to parse \"80,x\" as a port: "),
        ] {
            assert!(ports(wrong).unwrap_err().starts_with(why), "{wrong}");
        }
    }
}
