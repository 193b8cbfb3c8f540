use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, KeyPair};
use winddown_shared::error_chain;

use super::*;

const V1: &str = VERSIONS[0];

/// A plugin that is a shell script.
fn script(text: &str) -> ExecPlugin {
    let config = ExecConfig {
        api_version: Some(V1.into()),
        command: Some("/bin/sh".into()),
        args: Some(vec!["-c".into(), text.into()]),
        env: Some(vec![HashMap::from([
            ("name".into(), "WHO".into()),
            ("value".into(), "node-1".into()),
        ])]),
        install_hint: Some("ask your administrator".into()),
        ..serde_json::from_str("{}").unwrap()
    };
    ExecPlugin {
        patience: Duration::from_secs(20),
        ..ExecPlugin::of("users[u].exec".into(), &config).unwrap()
    }
}

fn answer(status: &str) -> String {
    format!(r#"{{"apiVersion":"{V1}","kind":"ExecCredential","status":{status}}}"#)
}

/// A plugin that writes `text`.
fn writes(text: &str) -> ExecPlugin {
    script(&format!("cat <<'end'\n{text}\nend"))
}

fn assembly() -> Assembly {
    Assembly::new("server", "https://10.0.0.1").unwrap()
}

async fn error(plugin: &ExecPlugin) -> String {
    let said = plugin.run(&mut assembly()).await.map(drop).expect_err("it gives no credentials");
    let said = error_chain(&said);
    let name = plugin.name();
    said.strip_prefix(&format!("{name}: ")).unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[tokio::test]
async fn a_command_that_others_may_write_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (command, ran) = (dir.path().join("login"), dir.path().join("ran"));
    std::fs::write(&command, format!("#!/bin/sh\n: >{}\n", ran.display())).unwrap();
    let plugin = ExecPlugin { command: command.display().to_string(), ..script("") };
    std::fs::set_permissions(&command, PermissionsExt::from_mode(0o757)).unwrap();
    let said = error(&plugin).await;
    assert!(said.contains("login: every user may write to it, so it is not run"), "{said}");
    assert!(!ran.exists());
    std::fs::set_permissions(&command, PermissionsExt::from_mode(0o755)).unwrap();
    let said = error(&plugin).await;
    assert!(ran.exists(), "{said}");
}

#[test]
fn a_command_without_a_folder_is_looked_for_like_a_shells() {
    assert!(program("sh").unwrap().ends_with("bin/sh"));
    assert_eq!(program("no-such-command"), None);
    assert_eq!(program("/opt/login"), Some("/opt/login".into()));
}

#[tokio::test]
async fn a_token_and_its_end_are_taken() {
    let status = r#"{"token":"abc","expirationTimestamp":"2031-05-06T07:08:09Z"}"#;
    let mut assembly = assembly();
    let expires = writes(&answer(status)).run(&mut assembly).await.unwrap().unwrap();
    assert!(assembly.has_credentials());
    assert_eq!(renewal(expires).to_string(), "2031-05-06T07:07:59Z");
}

#[tokio::test]
async fn a_certificate_and_its_key_are_taken() {
    let key = KeyPair::generate().unwrap();
    let chain = CertificateParams::default().self_signed(&key).unwrap().pem();
    let status = json!({"clientCertificateData": chain, "clientKeyData": key.serialize_pem()});
    let mut assembly = assembly();
    let expires = writes(&answer(&status.to_string())).run(&mut assembly).await.unwrap();
    assert!(assembly.has_credentials());
    assert_eq!(expires, None);
}

#[tokio::test]
async fn the_command_is_told_that_it_runs_unattended() {
    let text = r#"
        case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*) ;; *) exit 3;; esac
        [ "$WHO" = node-1 ] && ! read line || exit 4
        echo some noise >&2
        printf '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"t"}}' "$V""#;
    let mut plugin = script(text);
    plugin.env.push(("V".into(), V1.into()));
    plugin.run(&mut assembly()).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_said_with_the_command_and_what_to_do() {
    let versions = "instead of ExecCredential of client.authentication.k8s.io/v1: make both \
                    apiVersions the same";
    let table = [
        (
            script("echo; echo 'no profile x' >&2; exit 5"),
            "it failed (exit status: 5): no profile x",
        ),
        (script("kill -9 $$"), "it failed (signal: 9 (SIGKILL))"),
        (writes("token: t"), "it wrote no ExecCredential as JSON to its standard output"),
        (writes("{}"), &format!("it answered with kind \"\" of \"\" {versions}")),
        (writes(&answer("{}")), "it gave neither a token nor a certificate"),
        (writes(&answer(r#"{"token":""}"#)), "it gave neither a token nor a certificate"),
        (
            writes(&answer(r#"{"clientKeyData":"k"}"#)),
            "it gave one of clientCertificateData and clientKeyData without the other",
        ),
        (
            writes(&answer(r#"{"token":"a\nb"}"#)),
            "the token has to be one line of text, without control characters",
        ),
        (
            ExecPlugin { command: "/no/such/command".into(), ..script("") },
            "it cannot be started: install it, or write its whole path. ask your administrator: No \
             such file or directory (os error 2)",
        ),
        (
            ExecPlugin { patience: Duration::from_millis(200), ..script("sleep 600") },
            "no credentials within 200ms, so it was killed: run it by hand as the agent's user, \
             without a terminal",
        ),
    ];
    for (plugin, wanted) in table {
        assert_eq!(error(&plugin).await, wanted);
    }
}

#[tokio::test]
async fn a_command_that_writes_without_end_does_not_fill_the_memory() {
    let plugin = ExecPlugin { patience: Duration::from_millis(500), ..script("yes") };
    assert!(error(&plugin).await.starts_with("no credentials within 500ms"));
    let noisy = script("head -c 3000000 /dev/zero >&2; exit 1");
    assert!(error(&noisy).await.starts_with("it failed (exit status: 1)"));
}

#[test]
fn messages_name_the_command_without_its_folder() {
    let plugin = ExecPlugin {
        command: "/opt/bin/aws".into(),
        args: vec!["eks".into(), "get-token".into()],
        ..script("")
    };
    assert_eq!(plugin.name(), "users[u].exec: the command `aws eks get-token`");
}
