//! `winddown config`.

use std::path::Path;

use winddown_shared::display::clean;

use super::doctor::CHECK_TIMEOUT;
use super::{CommandError, ConfigArgs, ConfigCommand, Exit, GlobalArgs, Output, ask, status};
use winddown_config::{
    Config, ConfigError, DEFAULT_FILE, Loaded, Mode, Origin, Warning, default_yaml,
};
use winddown_control::Client;
use winddown_control::api::ConfigView;
use winddown_host::path_word;

pub(super) fn run(
    global: &GlobalArgs,
    args: &ConfigArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    match &args.command {
        ConfigCommand::Check { file } => {
            let file = file.as_deref().or(global.config.as_deref());
            // Named, so that nothing stands in for it.
            let file = file.unwrap_or(Path::new(DEFAULT_FILE));
            must_be_there(file)?;
            let (view, config) = load(Some(file))?;
            warn(&view, out);
            must_be_usable(file, &config, out)?;
            out.line(&format!("{}: valid{}", clean(&view.file), warnings(view.warnings.len())))?;
        }
        ConfigCommand::Show { running: false } => {
            let (view, _) = load(global.config.as_deref())?;
            warn(&view, out);
            out.bytes(view.yaml.as_bytes())?;
        }
        ConfigCommand::Show { running: true } => {
            let client = Client::new(&global.socket);
            return ask::block_on(async {
                let view = ask::patiently(out, status::WAITING, client.config()).await?;
                warn(&view, out);
                out.bytes(view.yaml.as_bytes())?;
                Ok(Exit::Success)
            });
        }
        ConfigCommand::Schema => out.json(&winddown_config::schema())?,
        ConfigCommand::Default => out.bytes(default_yaml().as_bytes())?,
    }
    Ok(Exit::Success)
}

/// The configuration that was named, or else the one at the default path, or what stands in for it.
pub(super) fn loaded(global: &GlobalArgs) -> Result<Loaded, ConfigError> {
    winddown_config::load(Path::new("/"), global.config.as_deref())
}

/// The [`loaded`] configuration and its warnings. If the last configuration in effect stands in for a file that cannot be
/// used, this says so.
pub(super) fn load_config(
    global: &GlobalArgs,
    out: &mut Output,
) -> Result<(Config, Vec<Warning>), CommandError> {
    let loaded = loaded(global)?;
    if loaded.origin == Origin::LastInForce
        && let Some(what) = loaded.stands_in()
    {
        out.progress(&winddown_render::notice(&what, "", out.error_color));
    }
    Ok((loaded.config, loaded.warnings))
}

/// Fails if there is no file to check: what stands in for it is not what was asked about.
fn must_be_there(file: &Path) -> Result<(), CommandError> {
    match std::fs::metadata(file) {
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            let error = ConfigError::Read { path: file.to_owned(), source };
            let hint = error.hint();
            Err(CommandError::new(Exit::ConfigMissing, error).with_hint(hint))
        }
        _ => Ok(()),
    }
}

/// Fails if the agent of this machine cannot use the configuration, which is valid.
fn must_be_usable(file: &Path, config: &Config, out: &mut Output) -> Result<(), CommandError> {
    let found = ask::block_on(async {
        let found = winddown_doctor::obstacles(config, CHECK_TIMEOUT);
        Ok(ask::patiently(out, "waiting for systemd's answer", found).await)
    })?;
    if found.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> =
        found.iter().map(|one| clean(&format!("{}: {one}", file.display())).into_owned()).collect();
    let hint = format!("`winddown --config {} doctor` says what to do", path_word(file));
    Err(CommandError::message(Exit::ConfigInvalid, lines.join("\n")).with_hint(hint))
}

/// Loads the configuration to find the reports. If the file is invalid, this warns and uses the default directory,
/// because reports are read when something went wrong.
pub(super) fn load_config_for_reports(
    global: &GlobalArgs,
    out: &mut Output,
) -> Result<Config, CommandError> {
    match loaded(global) {
        Ok(loaded) => Ok(loaded.config),
        Err(ConfigError::Invalid(_)) => {
            let usual = Config::default();
            let file = global.config.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
            let (file, place) = (file.display(), usual.access.state_directory.display());
            out.progress(&format!(
                "warning: {file} is not valid, and reports are looked for in {place}\n  next: `winddown config check`"
            ));
            Ok(usual)
        }
        Err(error) => Err(error.into()),
    }
}

fn load(file: Option<&Path>) -> Result<(ConfigView, Config), CommandError> {
    let loaded = winddown_config::load(Path::new("/"), file)?;
    let mut warnings: Vec<String> = loaded.stands_in().into_iter().collect();
    warnings.extend(loaded.warnings.iter().map(ToString::to_string));
    let file = loaded.file.display().to_string();
    let config = loaded.config;
    let cluster = &config.cluster;
    let is_alone = config.node.mode == Mode::Standalone;
    if !is_alone && cluster.kubeconfig.is_none() && cluster.bootstrap_kubeconfig.is_none() {
        let what =
            "without kubeconfig only an agent in a pod of the cluster reaches the API server";
        warnings.push(format!("{file}: {what}"));
    }
    Ok((ConfigView { file, yaml: config.to_yaml(), warnings }, config))
}

fn warn(view: &ConfigView, out: &mut Output) {
    for warning in &view.warnings {
        out.progress(&winddown_render::notice(warning, "", out.error_color));
    }
}

fn warnings(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        count => format!(", {count} warnings"),
    }
}
