//! `winddown config`.

use winddown_shared::display::clean;

use super::{
    CommandError, ConfigArgs, ConfigCommand, Exit, GlobalArgs, Offline, Output, ask, status,
};
use winddown_control::Client;
use winddown_control::api::ConfigView;

pub(super) fn run(
    global: &GlobalArgs,
    args: &ConfigArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    match &args.command {
        ConfigCommand::Check { file } => {
            let file = file.as_deref().or(global.config.as_deref());
            let view = offline.load_config(file)?;
            warn(&view, out);
            let name =
                if view.file.is_empty() { winddown_config::DEFAULT_FILE } else { &view.file };
            out.line(&format!("{}: valid{}", clean(name), warnings(view.warnings.len())))?;
        }
        ConfigCommand::Show { running: false } => {
            let view = offline.load_config(global.config.as_deref())?;
            warn(&view, out);
            out.text(&view.yaml)?;
        }
        ConfigCommand::Show { running: true } => {
            let client = Client::new(&global.socket);
            return ask::block_on(async {
                let view = ask::patiently(out, status::WAITING, client.config()).await?;
                warn(&view, out);
                out.text(&view.yaml)?;
                Ok(Exit::Success)
            });
        }
        ConfigCommand::Schema => out.json(&winddown_config::schema())?,
        ConfigCommand::Default => out.text(&offline.default_config())?,
    }
    Ok(Exit::Success)
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
