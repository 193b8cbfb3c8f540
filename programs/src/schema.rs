//! `winddown schema`: the JSON schemas of all answers in JSON.
//!
//! The schemas of the agent's own types are generated from the types, so that no field or
//! description is missing. Additional fields are allowed, because a later version may add some.

use clap::ValueEnum;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use winddown_control::api;

use super::{CommandError, Exit, Output, SchemaArgs, SchemaName};

pub(super) fn run(args: &SchemaArgs, out: &mut Output) -> Result<Exit, CommandError> {
    match args.name {
        Some(name) => out.json(&of(name))?,
        None => {
            for name in SchemaName::value_variants() {
                out.line(&typed(*name))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// Returns the schema of one kind of answer, in the 2020-12 dialect.
pub fn of(name: SchemaName) -> Value {
    match name {
        SchemaName::Config => winddown_config::schema(),
        SchemaName::Status => made::<api::Envelope<api::Status>>(name),
        SchemaName::PlanShutdown => made::<api::Envelope<api::ShutdownPlan>>(name),
        SchemaName::PlanShutdownLine => made::<winddown_shutdown::PlanAnswer>(name),
        SchemaName::PlanPreemption => made::<api::Envelope<api::PreemptionPlan>>(name),
        SchemaName::PlanPreemptionLine => made::<winddown_preemption::PreemptionAnswer>(name),
        SchemaName::PlanEviction => made::<api::Envelope<api::EvictionPlan>>(name),
        SchemaName::PlanEvictionLine => made::<winddown_eviction::EvictionAnswer>(name),
        SchemaName::PlanStart => made::<api::Envelope<api::StartPlan>>(name),
        SchemaName::Report => made::<winddown_shutdown::ShutdownReport>(name),
        SchemaName::ReportList => made::<api::Envelope<api::ReportList>>(name),
        SchemaName::StartReport => made::<winddown_node::ordered_start::StartReport>(name),
        SchemaName::Doctor => made::<winddown_doctor::Diagnosis>(name),
        SchemaName::Drain => made::<api::Envelope<api::DrainEvent>>(name),
        SchemaName::Undrain => made::<api::Envelope<api::WithdrawAnswer>>(name),
        SchemaName::Kill => made::<api::Envelope<api::KillAnswer>>(name),
        SchemaName::Release => made::<api::Envelope<api::ReleaseAnswer>>(name),
        SchemaName::TerminationNotice => {
            made::<winddown_engine::termination_notices::TerminationNotice>(name)
        }
        SchemaName::Version => made::<api::Envelope<api::VersionAnswer>>(name),
    }
}

/// Returns the name as on the command line.
fn typed(name: SchemaName) -> String {
    name.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Returns the `$id` of a schema. It is a URN, so there is nothing to fetch.
fn id(name: SchemaName) -> String {
    format!("urn:winddown.dev:v1alpha1:{}", typed(name))
}

fn made<T: JsonSchema>(name: SchemaName) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(tidy).transform(&mut schema);
    schema.insert("$id".to_owned(), json!(id(name)));
    schema.to_value()
}

/// Removes from a schema what only makes sense in Rust.
fn tidy(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    // The default is what a reader assumes for a field that an older answer lacks.
    object.remove("default");
    // The sizes of Rust's integers say nothing about the answer.
    if object.get("format").and_then(Value::as_str).is_some_and(|format| format != "date-time") {
        object.remove("format");
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = without_links(text);
    }
}

/// Replaces the links `[`a`](b)` and `[`a`]` with `a`.
fn without_links(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("[`") {
        let (before, link) = rest.split_at(start);
        let Some(end) = link.find("`]") else { break };
        left.push_str(before);
        left.push_str(link.get(2..end).unwrap_or_default());
        rest = link.get(end + 2..).unwrap_or_default();
        if let Some((_, after)) = rest.strip_prefix('(').and_then(|target| target.split_once(')')) {
            rest = after;
        }
    }
    left.push_str(rest);
    left
}
