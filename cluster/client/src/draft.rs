//! Credentials as files state them, and the command that supplies the rest.

use super::error::CredentialsError;
use super::exec::{self, ExecPlugin};
use super::files::Files;
use super::material::{Assembly, Material};

/// Everything that was read from files, before a command is run for the rest.
pub(super) struct CredentialsDraft {
    pub(super) assembly: Assembly,
    pub(super) files: Files,
    pub(super) plugin: Option<ExecPlugin>,
}

impl CredentialsDraft {
    /// The namespace of the context.
    pub(super) fn default_namespace(&self) -> &str {
        self.assembly.default_namespace()
    }

    /// Runs the command, if there is one.
    pub(super) async fn finish(mut self) -> Result<Material, CredentialsError> {
        let mut renew_at = None;
        if let Some(plugin) = &self.plugin {
            renew_at = plugin.run(&mut self.assembly).await?.map(exec::renewal);
        }
        let command = self.plugin.as_ref().map(ExecPlugin::name);
        Ok(self.assembly.finish(self.files, command, renew_at))
    }
}
