//! Whether a name of the product means one thing: no type that other files can name shares its name with another, no
//! type has a name that says nothing, a constant says what waits for what, or what it bounds, and a heading names the type
//! below it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use syn::visit::{self, Visit};
use syn::{Ident, Type, Visibility};

use crate::{limits, rooms};

/// Names of constants that do not say of what.
const VAGUE_CONSTANTS: [&str; 9] =
    ["AGAIN", "LARGEST", "LONGEST", "LOOK", "MOST", "PATIENCE", "SHORTEST", "SOON", "WITHIN"];

/// Constants of one word that say what they are: units of time, and systemd's longest one.
const UNITS: [&str; 5] = ["DAY", "HOUR", "INFINITY", "MINUTE", "SECOND"];

/// Names of types that do not say of what, private types included.
const VAGUE_TYPES: [&str; 12] = [
    "Answer", "Entry", "Found", "Inner", "Kept", "Known", "Place", "Places", "Seen", "Shared",
    "State", "Wanted",
];

/// Names that two types may share, and why.
const SAME: [(&str, &str); 6] = [
    ("ContainerStatus", "of the control socket, and of the runtime that it is made from"),
    ("GroupProgress", "of the control socket, and of the run that it is made from"),
    ("LockState", "of the control socket, and of the inhibitor that it is made from"),
    ("ManifestProblem", "of the control socket, and of the manifests that it is made from"),
    ("Policy", "each plug-in has one, and none sees another's"),
    ("StartPlan", "of the control socket, and of the plan that it is made from"),
];

/// Prints how many names there are.
///
/// # Errors
/// A source cannot be read, or a name is not allowed.
pub(crate) fn show(repository: &Path) -> Result<()> {
    let names = look(repository)?;
    let wrong = names.wrong(&SAME);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!(
        "{:>7}  types that other files can name, each with a name of its own",
        names.types.len()
    );
    Ok(())
}

fn look(repository: &Path) -> Result<Names> {
    let mut names = Names::default();
    for source in rooms::sources(repository)?.iter().flat_map(|(_, sources)| sources) {
        let path = source.path.strip_prefix(repository).unwrap_or(&source.path);
        names.read(&path.display().to_string(), &source.text)?;
    }
    Ok(names)
}

/// What all files define.
#[derive(Debug, Default)]
struct Names {
    /// The places of the types that other files can name, by name.
    types: BTreeMap<String, Vec<String>>,
    /// One line for each name that says nothing.
    vague: Vec<String>,
    /// The file that is being read.
    file: String,
}

// === impl Names ===

impl Names {
    fn read(&mut self, file: &str, text: &str) -> Result<()> {
        let syntax = syn::parse_file(text).with_context(|| format!("cannot read {file}"))?;
        file.clone_into(&mut self.file);
        self.visit_file(&syntax);
        self.headings(text);
        Ok(())
    }

    /// Refuses `// === impl Name ===` above an `impl` of something else, which is what a renamed type leaves behind.
    fn headings(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let heading =
                line.strip_prefix("// === impl ").and_then(|rest| rest.strip_suffix(" ==="));
            let Some(name) = heading.map(|name| name.split('<').next().unwrap_or(name)) else {
                continue;
            };
            let below = lines[at..].iter().find(|line| line.starts_with("impl"));
            let mut words =
                below.into_iter().flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
            if !words.any(|word| word == name) {
                let place = format!("{}:{}", self.file, at + 1);
                self.vague
                    .push(format!("{place}: the heading says {name}, and what is below does not"));
            }
        }
    }

    /// What the rules do not allow, one line each, if the types named `same` may share their names.
    fn wrong(&self, same: &[(&str, &str)]) -> Vec<String> {
        let is_listed = |name: &str| same.iter().any(|(listed, _)| *listed == name);
        let shared =
            self.types.iter().filter(|(name, places)| places.len() > 1 && !is_listed(name));
        let shared = shared.map(|(name, places)| {
            format!(
                "{name} names more than one type ({}): name each for what it is",
                places.join(", ")
            )
        });
        let is_shared = |name: &str| self.types.get(name).is_some_and(|places| places.len() > 1);
        let needless = same.iter().filter(|(name, _)| !is_shared(name));
        let needless = needless
            .map(|(name, _)| format!("{name} names one type: take it from the list of names.rs"));
        self.vague.iter().cloned().chain(shared).chain(needless).collect()
    }

    fn place(&self, name: &Ident) -> String {
        format!("{}:{}", self.file, name.span().start().line)
    }

    fn constant(&mut self, name: &Ident, of: &Type, is_associated: bool) {
        let text = name.to_string();
        let is_time = matches!(of, Type::Path(path) if path.path.is_ident("Duration"));
        let is_short = is_time && !is_associated && !text.contains('_') && !UNITS.contains(&&*text);
        // The type of an associated constant says of what.
        let is_vague = !is_associated && VAGUE_CONSTANTS.contains(&&*text);
        if is_short || is_vague {
            let place = self.place(name);
            self.vague.push(format!(
                "{place}: {text} does not say what waits for what, or what it bounds: ANSWER_TIMEOUT, MAX_LINE_BYTES"
            ));
        }
    }

    fn type_(&mut self, name: &Ident, visibility: &Visibility) {
        let (text, place) = (name.to_string(), self.place(name));
        if VAGUE_TYPES.contains(&&*text) {
            self.vague.push(format!(
                "{place}: {text} does not say of what: name the type for what it is"
            ));
        }
        if !matches!(visibility, Visibility::Inherited) {
            self.types.entry(text).or_default().push(place);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !limits::attributes(item).iter().any(limits::of_tests) {
            visit::visit_item(self, item);
        }
    }

    /// The types that a macro is given to define.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let tokens = item.mac.tokens.clone().into_iter();
        let words: Vec<String> = tokens.map(|token| token.to_string()).collect();
        for defined in words.windows(3).filter(|words| words[0] == "pub") {
            let name = syn::parse_str::<Ident>(&defined[2]);
            if let ("struct" | "enum", Ok(mut name)) = (&*defined[1], name) {
                name.set_span(item.mac.bang_token.span);
                self.type_(&name, &Visibility::Public(syn::token::Pub::default()));
            }
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(&item.ident, &item.ty, false);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.constant(&item.ident, &item.ty, false);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(&item.ident, &item.ty, true);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.type_(&item.ident, &item.vis);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.type_(&item.ident, &item.vis);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.type_(&item.ident, &item.vis);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.type_(&item.ident, &item.vis);
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(files: &[(&str, &str)], same: &[(&str, &str)]) -> Vec<String> {
        let mut names = Names::default();
        for (file, text) in files {
            names.read(file, text).unwrap();
        }
        names.wrong(same)
    }

    #[test]
    fn a_name_that_two_types_share_is_refused_unless_it_is_listed() {
        let both = [("a.rs", "pub struct Run;"), ("b.rs", "\npub(crate) enum Run {}")];
        assert_eq!(
            wrong(&both, &[]),
            ["Run names more than one type (a.rs:1, b.rs:2): name each for what it is"]
        );
        assert_eq!(wrong(&both, &[("Run", "one is made from the other")]), [""; 0]);
        assert_eq!(
            wrong(&both[..1], &[("Run", "one is made from the other")]),
            ["Run names one type: take it from the list of names.rs"]
        );
    }

    #[test]
    fn a_type_that_a_macro_defines_has_a_name_of_its_own_too() {
        let both =
            [("a.rs", "pub struct Run;"), ("b.rs", "\noptions! { pub struct Run { a: u8 = 1; } }")];
        assert_eq!(
            wrong(&both, &[]),
            ["Run names more than one type (a.rs:1, b.rs:2): name each for what it is"]
        );
    }

    #[test]
    fn a_type_that_one_file_sees_may_share_its_name_and_so_may_tests() {
        let texts =
            ["struct Run;", "#[cfg(test)]\nmod tests { pub struct Run; }", "type Run = u8;"];
        for text in texts {
            assert_eq!(
                wrong(&[("a.rs", "pub struct Run;"), ("b.rs", text)], &[]),
                [""; 0],
                "{text}"
            );
        }
    }

    #[test]
    fn a_type_whose_name_says_nothing_is_refused_even_in_one_file() {
        for name in VAGUE_TYPES {
            let text = format!("struct {name} {{}}");
            assert_eq!(wrong(&[("a.rs", &text)], &[]).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_constant_says_what_waits_for_what() {
        for (text, refused) in [
            ("const PATIENCE: usize = 1;", true),
            ("static MOST: usize = 1;", true),
            ("const CALM: Duration = Duration::ZERO;", true),
            ("fn f() { const LOOK: u8 = 1; }", true),
            ("const ANSWER_TIMEOUT: Duration = Duration::ZERO;", false),
            ("const MINUTE: Duration = Duration::ZERO;", false),
            ("const NAME: &str = \"\";", false),
            ("impl Grace { const SHORTEST: Duration = Duration::ZERO; }", false),
            ("#[cfg(test)]\nmod tests { const PATIENCE: u8 = 1; }", false),
        ] {
            assert_eq!(wrong(&[("a.rs", text)], &[]).len(), usize::from(refused), "{text}");
        }
    }

    #[test]
    fn a_heading_names_the_type_below_it() {
        for (heading, refused) in [("Run", false), ("Run<T>", false), ("Ru", true), ("Drill", true)]
        {
            for of in ["impl<T> Run<T> {}", "#[allow(x)]\nimpl fmt::Display for Run {}"] {
                let text = format!("struct Run;\n// === impl {heading} ===\n\n{of}\n");
                let told = wrong(&[("a.rs", &text)], &[]);
                assert_eq!(told.len(), usize::from(refused), "{heading}: {told:?}");
            }
        }
        let nothing = "struct Run;\n// === impl Run ===\n";
        assert_eq!(wrong(&[("a.rs", nothing)], &[]).len(), 1);
    }

    #[test]
    fn every_name_means_one_thing() {
        let names = look(&crate::repository()).unwrap();
        assert!(names.types.len() > 1000, "the types were found");
        assert_eq!(names.wrong(&SAME), [""; 0]);
    }
}
