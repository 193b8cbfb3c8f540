#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use futures_util::FutureExt;
use kube::client::ConfigExt as _;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use winddown_shared::error_chain;

use super::*;
use crate::material::{Material, base64};

/// A folder with a certificate, its key, another key and a kubeconfig.
struct Folder {
    dir: TempDir,
    certificate: String,
    key: String,
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        let folder = Self { dir, certificate, key: key.serialize_pem() };
        folder.write("node.crt", &folder.certificate);
        folder.write("node.key", &folder.key);
        folder.write("other.key", &KeyPair::generate().unwrap().serialize_pem());
        folder.write("token", "  abc.def.ghi\n");
        folder.write("empty", "\n");
        folder
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Reads a kubeconfig with this cluster and this user.
    fn read(&self, cluster: &str, user: &str) -> Result<Material, CredentialsError> {
        self.read_text(&format!(
            "{{apiVersion: v1, kind: Config, current-context: c,
              contexts: [{{name: c, context: {{cluster: k, user: u, namespace: shop}}}}],
              clusters: [{{name: k, cluster: {{{cluster}}}}}],
              users: [{{name: u, user: {{{user}}}}}]}}"
        ))
    }

    fn read_text(&self, text: &str) -> Result<Material, CredentialsError> {
        self.write("kubeconfig", text);
        material(&self.dir.path().join("kubeconfig"), None)
    }

    /// The error, with the folder's path written as `DIR`.
    fn error(&self, result: Result<Material, CredentialsError>) -> String {
        let error = result.map(drop).expect_err("this kubeconfig cannot be used");
        error_chain(&error).replace(&self.dir.path().display().to_string(), "DIR")
    }
}

/// Reads a kubeconfig that names no command.
fn material(path: &Path, context: Option<&str>) -> Result<Material, CredentialsError> {
    read(path, context)?.finish().now_or_never().expect("there is nothing to wait for")
}

const SERVER: &str = "server: 'https://10.0.0.1:6443'";

#[test]
fn a_kubeconfig_with_files_beside_it_is_read() {
    let folder = Folder::new();
    let cluster = format!("{SERVER}, certificate-authority: node.crt, tls-server-name: kubernetes");
    let user = "client-certificate: node.crt, client-key: node.key, tokenFile: token";
    let material = folder.read(&cluster, user).unwrap();
    assert_eq!(material.config.cluster_url, "https://10.0.0.1:6443/");
    assert_eq!(material.config.default_namespace, "shop");
    assert_eq!(material.config.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(material.config.root_cert.map(|roots| roots.len()), Some(1));
    assert_eq!(material.authorization.as_ref().unwrap(), "Bearer abc.def.ghi");
    assert!(material.authorization.unwrap().is_sensitive());
    assert!(material.certificate.is_some());
    let names = material.files.names();
    for file in ["kubeconfig", "node.crt", "node.key", "token"] {
        assert!(names.contains(&format!("/{file}")), "{names}");
    }
}

#[test]
fn a_kubeconfig_with_everything_in_it_is_read() {
    let folder = Folder::new();
    let (crt, key) = (folder.certificate.clone(), folder.key.clone());
    let cluster = format!("{SERVER}, certificate-authority-data: {}", base64(crt.clone().into()));
    let user = format!(
        "client-certificate-data: {}, client-key-data: {}",
        base64(crt.into()),
        base64(key.into())
    );
    let material = folder.read(&cluster, &user).unwrap();
    assert!(material.authorization.is_none());
    assert!(material.certificate.is_some());
}

#[test]
fn another_context_can_be_named() {
    let folder = Folder::new();
    folder.write(
        "kubeconfig",
        "{contexts: [{name: a, context: {cluster: none, user: none}},
                     {name: b, context: {cluster: k, user: u}}],
          clusters: [{name: k, cluster: {server: 'https://b'}}],
          users: [{name: u, user: {token: t}}]}",
    );
    let material = material(&folder.dir.path().join("kubeconfig"), Some("b")).unwrap();
    assert_eq!(material.config.cluster_url, "https://b/");
}

#[test]
fn a_file_is_named_unless_data_that_is_not_empty_takes_precedence() {
    let folder = Folder::new();
    for (data, wanted) in
        [("", true), (", client-key-data: ''", true), (", client-key-data: eA==", false)]
    {
        let user = format!("client-certificate: node.crt, client-key: node.key{data}");
        let _ = folder.read(SERVER, &user);
        let named = files_of_kubeconfig(&folder.dir.path().join("kubeconfig")).unwrap();
        let is_named = named.iter().any(|file| file.path.ends_with("node.key"));
        assert_eq!(is_named, wanted, "{data:?}");
    }
}

#[test]
fn an_empty_value_counts_as_no_value_as_for_a_kubelet() {
    let folder = Folder::new();
    for (cluster, user) in [
        ("", "username: '', password: ''"),
        ("", "as: '', as-uid: ''"),
        ("", "client-certificate: '', client-key: ''"),
        ("", "client-certificate-data: '', client-key-data: ''"),
        ("", "tokenFile: ''"),
        ("certificate-authority: '', tls-server-name: '', proxy-url: ''", ""),
    ] {
        let cluster = format!("{SERVER}, {cluster}");
        let read = folder.read(&cluster, &format!("token: abc, {user}"));
        let material = read.unwrap_or_else(|error| panic!("{cluster} {user}: {error}"));
        assert_eq!(material.authorization.unwrap(), "Bearer abc", "{cluster} {user}");
    }
    // The last one's authority is empty too, and is no file of that name.
    let named = files_of_kubeconfig(&folder.dir.path().join("kubeconfig")).unwrap();
    assert_eq!(named, []);
}

/// The machine's own certificates, of which it may have none, are not asked for then.
#[test]
fn a_server_that_is_not_verified_needs_no_authority() {
    let folder = Folder::new();
    let cluster = format!("{SERVER}, insecure-skip-tls-verify: true");
    let material = folder.read(&cluster, "token: abc").unwrap();
    assert_eq!(material.config.root_cert, Some(Vec::new()));
    material.config.rustls_client_config().unwrap();
}

#[test]
fn a_change_of_any_file_is_seen() {
    let folder = Folder::new();
    let cluster = format!("{SERVER}, certificate-authority: node.crt");
    for file in ["kubeconfig", "node.crt", "token"] {
        let material = folder.read(&cluster, "tokenFile: token").unwrap();
        assert!(!material.files.changed());
        let path = folder.dir.path().join(file);
        let text = std::fs::read(&path).unwrap();
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        assert!(material.files.changed(), "{file} was replaced by a file of the same contents");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_do() {
    let folder = Folder::new();
    let token = "token: t";
    let context = "contexts: [{name: c, context: {cluster: k, user: u}}]";
    let text = |text: &str| folder.error(folder.read_text(text));
    let cluster = |fields: &str| folder.error(folder.read(fields, token));
    let user = |fields: &str| folder.error(folder.read(SERVER, fields));
    let absent = folder.error(material(&folder.dir.path().join("absent"), None));

    let table = [
        (absent, "cannot read kubeconfig DIR/absent: No such file or directory (os error 2)"),
        (text(""), "DIR/kubeconfig: current-context is not set: set it, or name a context"),
        (text("{current-context: x}"), "DIR/kubeconfig: there is no context \"x\": it has none"),
        (
            text(&format!("{{current-context: x, {context}}}")),
            "DIR/kubeconfig: there is no context \"x\": it has \"c\"",
        ),
        (
            text(&format!("{{current-context: c, {context}}}")),
            "DIR/kubeconfig: contexts[c].cluster is \"k\", which does not exist: it has none",
        ),
        (
            text(&format!(
                "{{current-context: c, {context}, clusters: [{{name: k, cluster: {{{SERVER}}}}}],
                   users: [{{name: v, user: {{token: t}}}}]}}"
            )),
            "DIR/kubeconfig: contexts[c].user is \"u\", which does not exist: it has \"v\"",
        ),
        (
            cluster(""),
            "DIR/kubeconfig: clusters[k].server: it is missing: write the API server's address, \
             https://<host>:<port>",
        ),
        (
            cluster("server: 'http://10.0.0.1'"),
            "DIR/kubeconfig: clusters[k].server: \"http://10.0.0.1\" is not an https URL: \
             credentials are sent over TLS only, so write https://<host>:<port>",
        ),
        (
            cluster("server: 10.0.0.1"),
            "DIR/kubeconfig: clusters[k].server: \"10.0.0.1\" is not an https URL: credentials \
             are sent over TLS only, so write https://<host>:<port>",
        ),
        (
            cluster("server: 'https://a b'"),
            "DIR/kubeconfig: clusters[k].server: \"https://a b\" is not a URL: write https://<host>:<port>",
        ),
        (
            cluster(&format!("{SERVER}, proxy-url: 'http://proxy'")),
            "DIR/kubeconfig: clusters[k].proxy-url: proxies are not supported: remove it, and let \
             the node reach the API server directly",
        ),
        (
            cluster(&format!("{SERVER}, certificate-authority: gone.crt")),
            "cannot read certificate authority DIR/gone.crt: No such file or directory (os error 2)",
        ),
        (
            cluster(&format!("{SERVER}, certificate-authority: token")),
            "certificate authority DIR/token: there is no certificate in it: put the cluster's CA \
             there, as PEM",
        ),
        (
            user(""),
            "DIR/kubeconfig: users[u]: there are no credentials: add client-certificate and \
             client-key, or tokenFile, or token, or exec",
        ),
        (
            user("exec: {command: aws}"),
            "DIR/kubeconfig: users[u].exec.apiVersion: it is \"\": write \
             client.authentication.k8s.io/v1",
        ),
        (
            user("exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: aws}"),
            "DIR/kubeconfig: users[u].exec.apiVersion: it is \
             \"client.authentication.k8s.io/v1alpha1\": write client.authentication.k8s.io/v1",
        ),
        (
            user("exec: {apiVersion: client.authentication.k8s.io/v1}"),
            "DIR/kubeconfig: users[u].exec.command: it is missing: name the command that gives \
             credentials",
        ),
        (
            user(
                "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, \
                 interactiveMode: Always}",
            ),
            "DIR/kubeconfig: users[u].exec.interactiveMode: the command needs a terminal, and a \
             service has none: use one that runs unattended, with interactiveMode: Never",
        ),
        (
            user("token: t, exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}"),
            "DIR/kubeconfig: users[u].exec: there are other credentials beside it: keep one kind",
        ),
        (
            user("username: a, password: b"),
            "DIR/kubeconfig: users[u].username: this is not supported: API servers have not \
             accepted passwords since 1.19",
        ),
        (
            user("client-certificate: node.crt"),
            "DIR/kubeconfig: users[u].client-key: there is a client-certificate without it: add \
             the certificate's key",
        ),
        (
            user("client-key: node.key"),
            "DIR/kubeconfig: users[u].client-certificate: there is a client-key without it: add \
             the key's certificate",
        ),
        (
            user("client-certificate: node.key, client-key: node.key"),
            "client certificate DIR/node.key: there is no certificate in it: put the client \
             certificate there, as PEM",
        ),
        (
            user("client-certificate: node.crt, client-key: token"),
            "client key DIR/token: there is no private key in it: put the client's key there, as PEM",
        ),
        (user("tokenFile: empty"), "token file DIR/empty: the token is empty"),
    ];
    for (said, wanted) in table {
        assert_eq!(said, wanted);
    }
}

#[test]
fn what_is_no_kubeconfig_is_told_by_its_line_and_without_advice_for_programmers() {
    let folder = Folder::new();
    let what = "DIR/kubeconfig is not a kubeconfig: YAML of apiVersion v1, kind Config is expected";
    for text in [
        "clusters: []\nclusters: []\n",
        "apiVersion: v1\ncurrent-context: [1]\n",
        "- a\n",
        "apiVersion: v1\nkind: {a\n",
    ] {
        let said = folder.error(folder.read_text(text));
        let line = said.strip_prefix(what).unwrap_or_else(|| panic!("{text}: {said}"));
        let is_line = line.starts_with("; line ")
            && line.ends_with(" is none, or has a value of another type");
        assert!(line.is_empty() || is_line, "{text}: {said}");
    }
}

#[test]
fn what_a_library_complains_about_is_told_with_its_place_and_in_no_librarys_words() {
    let folder = Folder::new();
    let table = [
        (
            folder.error(folder.read_text("[not: a: mapping")),
            "DIR/kubeconfig is not a kubeconfig: YAML of apiVersion v1, kind Config is expected; line 1 \
             is none, or has a value of another type",
        ),
        (
            folder
                .error(folder.read(SERVER, "client-certificate-data: '%%', client-key: node.key")),
            "DIR/kubeconfig: users[u].client-certificate-data: this is not base64: write the file's \
             contents through `base64 -w0`",
        ),
        (
            folder
                .error(folder.read(SERVER, "client-certificate: node.crt, client-key: other.key")),
            "client key DIR/other.key: it cannot be used with the certificate in client \
             certificate DIR/node.crt: renew both together",
        ),
        (
            folder.error(folder.read(
                &format!("{SERVER}, certificate-authority-data: {}", base64(b"-----BEGIN".into())),
                "token: t",
            )),
            "DIR/kubeconfig: clusters[k].certificate-authority-data: there is no certificate in it: put \
             the cluster's CA there, as PEM",
        ),
        (
            folder.error(folder.read(SERVER, "token: \"a\\nb\"")),
            "DIR/kubeconfig: users[u].token: the token has to be one line of text, without control characters",
        ),
    ];
    for (said, wanted) in table {
        assert_eq!(said, wanted);
    }
}

#[test]
fn a_file_of_any_size_is_not_read_into_memory() {
    let folder = Folder::new();
    let huge = std::fs::File::create(folder.dir.path().join("huge")).unwrap();
    huge.set_len(5 << 30).unwrap();
    assert_eq!(
        folder.error(folder.read(SERVER, "tokenFile: huge")),
        "DIR/huge: 5368709120 bytes are too many for token file: name the right file"
    );
}
