//! Credentials from a kubeconfig.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use kube::config::{
    AuthInfo, Cluster, Context, ExecAuthCluster, ExecConfig, Kubeconfig, KubeconfigError,
};
use secrecy::ExposeSecret;

use super::draft::CredentialsDraft;
use super::error::CredentialsError;
use super::exec::{self, ExecPlugin};
use super::files::Files;
use super::material::{Assembly, FoundText, unbase64};

#[cfg(test)]
mod tests;

/// The extension of a cluster that is for commands that give credentials.
const FOR_COMMANDS: &str = "client.authentication.k8s.io/exec";

/// One context of a kubeconfig, with its cluster and user.
struct Chosen<'a> {
    path: &'a Path,
    context: &'a Context,
    cluster: &'a Cluster,
    user_name: &'a str,
    user: &'a AuthInfo,
}

/// A file that a kubeconfig names, and that is used with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The field, such as `users.tokenFile`.
    pub field: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What it is used for.
    pub purpose: FileUse,
    /// Whether it is the first of its name in the `PATH` of this process, which another's may not be.
    pub is_searched: bool,
}

/// What a file that a kubeconfig names is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// It is read.
    Read,
    /// It is read, and has a key or a token.
    Secret,
    /// It is run as a command.
    Run,
}

/// Returns the files that the current context of a kubeconfig names. Blocks.
///
/// # Errors
/// The kubeconfig cannot be read, or has no usable current context.
pub fn files_of_kubeconfig(path: &Path) -> Result<Vec<NamedFile>, CredentialsError> {
    named_files(path, None)
}

/// The kubeconfig, and the files that the context names if it can be read. Blocks.
pub(super) fn files(path: &Path, context: Option<&str>) -> Vec<PathBuf> {
    let named = named_files(path, context).unwrap_or_default();
    std::iter::once(path.to_path_buf()).chain(named.into_iter().map(|file| file.path)).collect()
}

fn named_files(path: &Path, context: Option<&str>) -> Result<Vec<NamedFile>, CredentialsError> {
    let config = parse(&mut Files::default(), path)?;
    let chosen = Chosen::find(path, &config, context)?;
    let (cluster, user) = (chosen.cluster, chosen.user);
    // As in `data_or_file`, data in the kubeconfig itself takes precedence, unless it is empty.
    let no_data = |data: Option<&str>, file: &Option<String>| {
        file.clone().filter(|_| data.is_none_or(str::is_empty))
    };
    let authority =
        no_data(cluster.certificate_authority_data.as_deref(), &cluster.certificate_authority);
    let chain = no_data(user.client_certificate_data.as_deref(), &user.client_certificate);
    let key_data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = no_data(key_data, &user.client_key);
    let command = user.exec.as_ref().and_then(|exec| exec.command.as_deref());
    let program = command.and_then(exec::program);
    let file = |file: Option<String>| file.filter(|file| !file.is_empty()).map(PathBuf::from);
    let all = [
        ("clusters.certificate-authority", file(authority), FileUse::Read),
        ("users.client-certificate", file(chain), FileUse::Read),
        ("users.client-key", file(key), FileUse::Secret),
        ("users.tokenFile", file(user.token_file.clone()), FileUse::Secret),
        ("users.exec.command", program, FileUse::Run),
    ];
    let is_name = command.is_some_and(|command| !command.contains('/'));
    let named = |(field, path, purpose)| {
        let is_searched = is_name && purpose == FileUse::Run;
        Some(NamedFile { field, path: path?, purpose, is_searched })
    };
    Ok(all.into_iter().filter_map(named).collect())
}

/// Reads a kubeconfig and the files it refers to. Blocks.
pub(super) fn read(
    path: &Path,
    context: Option<&str>,
) -> Result<CredentialsDraft, CredentialsError> {
    let mut files = Files::default();
    let config = parse(&mut files, path)?;
    let chosen = Chosen::find(path, &config, context)?;
    let mut assembly = chosen.cluster(&mut files)?;
    assembly.namespace(chosen.context.namespace.clone());
    let plugin = chosen.user(&mut assembly, &mut files)?;
    Ok(CredentialsDraft { assembly, files, plugin })
}

fn parse(files: &mut Files, path: &Path) -> Result<Kubeconfig, CredentialsError> {
    files.read("kubeconfig", path)?;
    load(path)
}

/// Loads a kubeconfig, and says in words for operators what is wrong with it: the parser's advise a programmer. Blocks.
pub(super) fn load(path: &Path) -> Result<Kubeconfig, CredentialsError> {
    let config = Kubeconfig::read_from(path).map_err(|error| {
        let line = match error {
            KubeconfigError::ReadConfig(source, path) => {
                return CredentialsError::Read { what: "kubeconfig", path, source };
            }
            KubeconfigError::Parse(error) => error.location().map(|location| location.line()),
            // Documents that do not fit together.
            _ => None,
        };
        CredentialsError::Parse { path: path.to_path_buf(), line }
    });
    config.map(|config| without_empty_files(path, config))
}

/// Takes away the files whose path is empty, which the library has made the kubeconfig's own directory.
fn without_empty_files(path: &Path, mut config: Kubeconfig) -> Kubeconfig {
    let directory = path.parent().map(|parent| parent.join("").into_os_string());
    let clusters = config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut());
    let users = config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut());
    let of_clusters = clusters.map(|cluster| &mut cluster.certificate_authority);
    let of_users = users.flat_map(|user| {
        [&mut user.client_certificate, &mut user.client_key, &mut user.token_file]
    });
    for file in of_clusters.chain(of_users) {
        if file.as_deref().map(OsStr::new) == directory.as_deref() {
            *file = None;
        }
    }
    config
}

impl<'a> Chosen<'a> {
    fn find(
        path: &'a Path,
        config: &'a Kubeconfig,
        wanted: Option<&str>,
    ) -> Result<Self, CredentialsError> {
        let wrong = |problem| CredentialsError::contents(path.display().to_string(), problem);
        let Some(name) =
            wanted.or(config.current_context.as_deref()).filter(|name| !name.is_empty())
        else {
            return Err(wrong("current-context is not set: set it, or name a context".into()));
        };
        let named = config.contexts.iter().find(|named| named.name == name);
        let Some(context) = named.and_then(|named| named.context.as_ref()) else {
            let have = list(config.contexts.iter().map(|named| named.name.as_str()));
            return Err(wrong(format!("there is no context {name:?}: it has {have}")));
        };
        let named = config.clusters.iter().find(|named| named.name == context.cluster);
        let Some(cluster) = named.and_then(|named| named.cluster.as_ref()) else {
            let have = list(config.clusters.iter().map(|named| named.name.as_str()));
            return Err(wrong(format!(
                "contexts[{name}].cluster is {:?}, which does not exist: it has {have}",
                context.cluster
            )));
        };
        let user_name = context.user.as_deref().unwrap_or_default();
        let named = config.auth_infos.iter().find(|named| named.name == user_name);
        let Some(user) = named.and_then(|named| named.auth_info.as_ref()) else {
            let have = list(config.auth_infos.iter().map(|named| named.name.as_str()));
            return Err(wrong(format!(
                "contexts[{name}].user is {user_name:?}, which does not exist: it has {have}"
            )));
        };
        Ok(Self { path, context, cluster, user_name, user })
    }

    fn cluster(&self, files: &mut Files) -> Result<Assembly, CredentialsError> {
        let cluster = self.cluster;
        let place = |field: &str| self.place("clusters", &self.context.cluster, field);
        let Some(server) = cluster.server.as_deref().filter(|server| !server.is_empty()) else {
            let problem = "it is missing: write the API server's address, https://<host>:<port>";
            return Err(CredentialsError::contents(place("server"), problem));
        };
        let mut assembly = Assembly::new(&place("server"), server)?;
        if cluster.proxy_url.as_deref().is_some_and(|proxy| !proxy.is_empty()) {
            let problem = "proxies are not supported: remove it, and let the node reach the API \
                           server directly";
            return Err(CredentialsError::contents(place("proxy-url"), problem));
        }
        assembly.server_name(cluster.tls_server_name.clone());
        if cluster.insecure_skip_tls_verify == Some(true) {
            assembly.accept_any_server();
        }
        if let Some(found) = self.authority(files)? {
            assembly.authority(&found)?;
        }
        Ok(assembly)
    }

    fn authority(&self, files: &mut Files) -> Result<Option<FoundText>, CredentialsError> {
        self.data_or_file(
            files,
            self.place("clusters", &self.context.cluster, "certificate-authority-data"),
            self.cluster.certificate_authority_data.as_deref(),
            "certificate authority",
            self.cluster.certificate_authority.as_deref(),
        )
    }

    /// The command of the user's `exec` field, which learns of the cluster if the field says so.
    fn command(
        &self,
        exec: &ExecConfig,
        files: &mut Files,
    ) -> Result<ExecPlugin, CredentialsError> {
        let mut exec = exec.clone();
        if exec.provide_cluster_info {
            let cluster = self.cluster;
            let mut extensions = cluster.extensions.iter().flatten();
            exec.cluster = Some(ExecAuthCluster {
                server: cluster.server.clone(),
                insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
                certificate_authority_data: self.authority(files)?.map(|found| found.bytes),
                tls_server_name: cluster.tls_server_name.clone(),
                proxy_url: None,
                config: extensions
                    .find(|extension| extension.name == FOR_COMMANDS)
                    .map(|extension| extension.extension.clone()),
            });
        }
        ExecPlugin::of(self.place("users", self.user_name, "exec"), &exec)
    }

    /// Adds the credentials in the user's fields. Returns the command that supplies the rest, if any.
    fn user(
        &self,
        assembly: &mut Assembly,
        files: &mut Files,
    ) -> Result<Option<ExecPlugin>, CredentialsError> {
        let user = self.user;
        self.refuse_what_is_not_supported()?;
        let place = |field: &str| self.place("users", self.user_name, field);
        let chain = self.data_or_file(
            files,
            place("client-certificate-data"),
            user.client_certificate_data.as_deref(),
            "client certificate",
            user.client_certificate.as_deref(),
        )?;
        let data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
        let key = self.data_or_file(
            files,
            place("client-key-data"),
            data,
            "client key",
            user.client_key.as_deref(),
        )?;
        match (&chain, &key) {
            (Some(chain), Some(key)) => assembly.identity(chain, key)?,
            (Some(_), None) => {
                let problem = "there is a client-certificate without it: add the certificate's key";
                return Err(CredentialsError::contents(place("client-key"), problem));
            }
            (None, Some(_)) => {
                let problem = "there is a client-key without it: add the key's certificate";
                return Err(CredentialsError::contents(place("client-certificate"), problem));
            }
            (None, None) => {}
        }
        // As in client-go, `tokenFile` takes precedence over `token`, and empty fields count as unset.
        if let Some(path) = user.token_file.as_deref().filter(|path| !path.is_empty()) {
            let bytes = files.read("token file", Path::new(path))?;
            assembly.token(&FoundText { place: format!("token file {path}"), bytes })?;
        } else if let Some(token) =
            user.token.as_ref().map(ExposeSecret::expose_secret).filter(|t| !t.is_empty())
        {
            let bytes = token.as_bytes().to_vec();
            assembly.token(&FoundText { place: place("token"), bytes })?;
        }
        let exec = user.exec.as_ref().map(|exec| self.command(exec, files)).transpose()?;
        match exec {
            Some(_) if assembly.has_credentials() => {
                let problem = "there are other credentials beside it: keep one kind";
                return Err(CredentialsError::contents(place("exec"), problem));
            }
            None if !assembly.has_credentials() => {}
            exec => return Ok(exec),
        }
        let problem = "there are no credentials: add client-certificate and client-key, or \
                       tokenFile, or token, or exec";
        Err(CredentialsError::contents(self.place("users", self.user_name, ""), problem))
    }

    fn refuse_what_is_not_supported(&self) -> Result<(), CredentialsError> {
        let user = self.user;
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let refused = [
            ("auth-provider", user.auth_provider.is_some(), "Kubernetes removed it in 1.26"),
            (
                "username",
                is_set(&user.username),
                "API servers have not accepted passwords since 1.19",
            ),
            ("as", is_set(&user.impersonate), "a node does not impersonate other users"),
        ];
        match refused.into_iter().find(|(_, set, _)| *set) {
            None => Ok(()),
            Some((field, _, instead)) => Err(CredentialsError::contents(
                self.place("users", self.user_name, field),
                format!("this is not supported: {instead}"),
            )),
        }
    }

    /// Decodes `data` from base64, or else reads the file.
    fn data_or_file(
        &self,
        files: &mut Files,
        place: String,
        data: Option<&str>,
        what: &'static str,
        path: Option<&str>,
    ) -> Result<Option<FoundText>, CredentialsError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let bytes = unbase64(&place, data)?;
            return Ok(Some(FoundText { place, bytes }));
        }
        let Some(path) = path.filter(|path| !path.is_empty()).map(PathBuf::from) else {
            return Ok(None);
        };
        let bytes = files.read(what, &path)?;
        Ok(Some(FoundText { place: format!("{what} {}", path.display()), bytes }))
    }

    fn place(&self, list: &str, name: &str, field: &str) -> String {
        let dot = if field.is_empty() { "" } else { "." };
        format!("{}: {list}[{name}]{dot}{field}", self.path.display())
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("{name:?}")).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
