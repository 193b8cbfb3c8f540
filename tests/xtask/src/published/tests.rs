use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::published;
use crate::repository;

/// The crates.io categories in use. The registry refuses unknown ones.
const CATEGORIES: [&str; 10] = [
    "algorithms",
    "api-bindings",
    "asynchronous",
    "caching",
    "config",
    "filesystem",
    "hardware-support",
    "network-programming",
    "os::linux-apis",
    "parser-implementations",
];

fn all_published() -> BTreeMap<String, Value> {
    published(&repository()).unwrap()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn make_packs_the_crates_that_can_be_published_and_no_others() {
    let makefile = std::fs::read_to_string(repository().join("Makefile")).unwrap();
    let (_, list) = makefile.split_once("--package winddown-,").unwrap();
    let (list, _) = list.split_once(')').unwrap();
    let packed: BTreeSet<String> = list
        .split(|c: char| c.is_whitespace() || c == '\\')
        .filter(|name| !name.is_empty())
        .map(|name| format!("winddown-{name}"))
        .collect();
    assert_eq!(packed, all_published().into_keys().collect());
}

#[test]
fn a_published_crate_says_what_it_is_in_the_registry_s_terms() {
    let all = all_published();
    for (name, one) in &all {
        assert!(one["description"].is_string(), "{name}: description");
        let keywords = texts(&one["keywords"]);
        assert!((1..=5).contains(&keywords.len()), "{name}: {keywords:?}");
        for word in keywords {
            assert!(word.len() <= 20 && word.starts_with(char::is_alphanumeric), "{name}: {word}");
        }
        let categories = texts(&one["categories"]);
        assert!(!categories.is_empty(), "{name}: categories");
        for category in categories {
            assert!(CATEGORIES.contains(&category), "{name}: {category}");
        }
        if !links_api(&all, one) {
            continue;
        }
        let text = std::fs::read_to_string(repository().join(".cargo/config.toml")).unwrap();
        let arguments = texts(&one["metadata"]["docs"]["rs"]["cargo-args"]).join(" ");
        let (variable, version) = arguments.split_once("env.").unwrap().1.split_once('=').unwrap();
        let setting = format!("{variable} = {}", version.replace('\'', "\""));
        assert!(text.contains(&setting), "{name}: {setting} is not that of .cargo/config.toml");
    }
}

#[test]
fn a_published_crate_needs_only_crates_that_are_published_in_this_version() {
    let published = all_published();
    for (name, one) in &published {
        for other in one["dependencies"].as_array().unwrap() {
            let other_name = other["name"].as_str().unwrap();
            // Unversioned dev-dependencies are left out of the package.
            let stays = other["kind"].is_null() || other["req"] != "*";
            if other["path"].is_null() || !stays {
                continue;
            }
            let of = published.get(other_name);
            let of = of.unwrap_or_else(|| panic!("{name} needs {other_name}, kept back"));
            let version = format!("^{}", of["version"].as_str().unwrap());
            assert_eq!(other["req"], version, "{name} needs {other_name}");
        }
    }
}

/// Whether a program that links this crate links the Kubernetes API, directly or indirectly.
fn links_api(all: &BTreeMap<String, Value>, one: &Value) -> bool {
    let needs =
        one["dependencies"].as_array().unwrap().iter().filter(|other| other["kind"].is_null());
    needs.map(|other| other["name"].as_str().unwrap()).any(|name| {
        name == "k8s-openapi" || all.get(name).is_some_and(|other| links_api(all, other))
    })
}

#[test]
fn a_readme_names_the_features_and_what_it_takes_to_build() {
    let workspace = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let (_, api) = workspace.split_once("k8s-openapi = { ").unwrap();
    let (api, _) = api.split_once(',').unwrap();
    let all = all_published();
    for (name, one) in &all {
        let manifest = std::path::Path::new(one["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap();
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let rust = format!("Rust {} ", one["rust_version"].as_str().unwrap());
        let version = links_api(&all, one).then(|| format!("k8s-openapi = {{ {api},"));
        for wanted in [format!("# {name}\n"), rust].into_iter().chain(version) {
            assert!(readme.contains(&wanted), "{name}: README.md does not say {wanted:?}");
        }
        for feature in one["features"].as_object().unwrap().keys() {
            let named = format!("`{feature}`");
            assert!(readme.contains(&named), "{name}: README.md does not name feature {feature}");
        }
        assert!(folder.join("LICENSE").exists(), "{name}: LICENSE");
    }
}

/// What a feature adds is on the page of a crate only if that is built with it.
#[test]
fn the_pages_on_docs_rs_show_every_feature() {
    for (name, one) in all_published() {
        let built = &one["metadata"]["docs"]["rs"]["features"];
        let built = if built.is_null() { Vec::new() } else { texts(built) };
        for feature in one["features"].as_object().unwrap().keys() {
            assert!(built.contains(&&**feature), "{name}: docs.rs builds it without {feature}");
        }
    }
}

/// The targets of the links of a page.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

#[test]
fn the_front_page_of_a_crate_is_its_readme_whose_program_compiles_and_whose_links_work_everywhere()
{
    let published = all_published().into_values();
    let folders = published.map(|one| {
        let manifest = std::path::Path::new(one["manifest_path"].as_str().unwrap()).to_owned();
        manifest.parent().unwrap().to_owned()
    });
    for folder in folders.chain([repository().join("node")]) {
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
        let (page, readme) = (read("src/lib.rs"), read("README.md"));
        let shown = folder.display();
        // What rustdoc shows, it compiles.
        assert!(page.starts_with("#![doc = include_str!(\"../README.md\")]\n"), "{shown}");
        assert!(readme.contains("```rust\n"), "{shown}: README.md has no program");
        for link in links(&readme) {
            let works = match link.strip_prefix('#') {
                Some(anchor) => readme.lines().any(|line| {
                    let heading = line.trim_start_matches('#').trim().to_lowercase();
                    line.starts_with('#') && heading.replace(' ', "-") == anchor
                }),
                // A registry's page has no files beside it.
                None => link.starts_with("https://"),
            };
            assert!(works, "{shown}: README.md links to {link}");
        }
    }
}
