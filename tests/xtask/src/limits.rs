//! Which types, traits and functions of the product are larger than the house rules allow, and why.
//!
//! Counted are the fields of a struct or of a variant, the functions of a trait, provided ones too, and the lines of a
//! function from its `fn` to its closing brace, blank lines and comments too. What has more than is allowed says why
//! among the lines above it, in a comment of one sentence:
//!
//! ```text
//! /// The options of a section.
//! // Over the limit because it is a table: one row per option.
//! fn rows() -> Vec<Row> {
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Fields, Signature};

use crate::rooms;

/// How the sentence begins.
const BECAUSE: &str = "// Over the limit because ";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Fields,
    Methods,
    Lines,
}

/// A type, trait or function that is over its limit.
#[derive(Debug)]
struct Large {
    part: Part,
    count: usize,
    name: String,
    /// The file and the line of the name.
    place: String,
    /// The sentence, without how it begins.
    why: Option<String>,
}

/// Prints what is over the limits, largest first.
///
/// # Errors
/// A source cannot be read, something over a limit does not say why, or something says so that is not.
pub(crate) fn show(repository: &Path) -> Result<()> {
    let mut found = look(repository)?;
    found.large.sort_by_key(|large| (large.part, std::cmp::Reverse(large.count)));
    for large in &found.large {
        let why = large.why.as_deref().unwrap_or("it does not say why");
        println!(
            "{:>4} {:<7}  {} ({}): {why}",
            large.count,
            large.part.name(),
            large.name,
            large.place
        );
    }
    let wrong = found.wrong();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn look(repository: &Path) -> Result<Found> {
    let mut found = Found::default();
    for source in rooms::sources(repository)?.iter().flat_map(|(_, sources)| sources) {
        let path = source.path.strip_prefix(repository).unwrap_or(&source.path);
        found.read(&path.display().to_string(), &source.text)?;
    }
    Ok(found)
}

/// What all files have.
#[derive(Debug, Default)]
struct Found {
    large: Vec<Large>,
    /// The places of sentences at what is not over a limit.
    needless: Vec<String>,
}

/// Walks through a file.
struct Walk<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    large: Vec<Large>,
    /// The lines of the sentences that have been found at something over a limit.
    used: BTreeSet<usize>,
}

// === impl Part ===

impl Part {
    fn most(self) -> usize {
        match self {
            Self::Fields => 15,
            Self::Methods => 6,
            Self::Lines => 60,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fields => "fields",
            Self::Methods => "methods",
            Self::Lines => "lines",
        }
    }
}

// === impl Found ===

impl Found {
    fn read(&mut self, file: &str, text: &str) -> Result<()> {
        let syntax = syn::parse_file(text).with_context(|| format!("cannot read {file}"))?;
        let lines = text.lines().collect();
        let mut walk = Walk { file, lines, large: Vec::new(), used: BTreeSet::new() };
        walk.visit_file(&syntax);
        let sentences = walk.lines.iter().enumerate();
        let needless = sentences
            .filter(|(at, line)| begins(line) && !walk.used.contains(at))
            .map(|(at, _)| format!("{file}:{}", at + 1));
        self.needless.extend(needless);
        self.large.append(&mut walk.large);
        Ok(())
    }

    /// What the rules do not allow, one line each.
    fn wrong(&self) -> Vec<String> {
        let silent = self.large.iter().filter(|large| large.why.is_none()).map(|large| {
            let Large { part, count, name, place, .. } = large;
            let (most, part) = (part.most(), part.name());
            format!(
                "{place}: {name} has {count} {part}, and {most} are allowed: make two of it, or say why it is one \
                 in a comment above it: {BECAUSE}…"
            )
        });
        let needless = self.needless.iter();
        let needless = needless
            .map(|place| format!("{place}: this is not over a limit: take the sentence away"));
        silent.chain(needless).collect()
    }
}

// === impl Walk ===

impl Walk<'_> {
    /// Notes what is over a limit. `line` has its name; its attributes and documentation, from line `first` on, are
    /// above that.
    fn count(&mut self, part: Part, count: usize, name: String, (first, line): (usize, usize)) {
        if count <= part.most() {
            return;
        }
        let place = format!("{}:{line}", self.file);
        let why = self.sentence(first, line);
        self.large.push(Large { part, count, name, place, why });
    }

    /// The sentence among the lines above an item and the comments above those. Lines are counted from one.
    fn sentence(&mut self, first: usize, line: usize) -> Option<String> {
        let comment = |at: &usize| self.lines[*at].trim_start().starts_with("//");
        let first = (0..first - 1).rev().take_while(comment).last().unwrap_or(first - 1);
        let at = (first..line - 1).find(|at| begins(self.lines[*at]))?;
        let rest = (at..line - 1)
            .map_while(|at| self.lines[at].trim_start().strip_prefix("// "))
            .collect::<Vec<_>>()
            .join(" ");
        self.used.insert(at);
        let why = rest.strip_prefix(&BECAUSE[3..])?;
        why.ends_with('.').then(|| why.to_owned())
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        let line = signature.fn_token.span.start().line;
        let count = body.brace_token.span.close().end().line + 1 - line;
        self.count(
            Part::Lines,
            count,
            signature.ident.to_string(),
            (first(attributes, line), line),
        );
    }

    fn fields(&mut self, name: String, attributes: &[Attribute], fields: &Fields, line: usize) {
        self.count(Part::Fields, fields.len(), name, (first(attributes, line), line));
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !attributes(item).iter().any(of_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let line = item.ident.span().start().line;
        self.fields(item.ident.to_string(), &item.attrs, &item.fields, line);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        for variant in &item.variants {
            let line = variant.ident.span().start().line;
            let name = format!("{}::{}", item.ident, variant.ident);
            self.fields(name, &variant.attrs, &variant.fields, line);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let is_fn = |item: &&syn::TraitItem| matches!(item, syn::TraitItem::Fn(_));
        let count = item.items.iter().filter(is_fn).count();
        let line = item.ident.span().start().line;
        self.count(Part::Methods, count, item.ident.to_string(), (first(&item.attrs, line), line));
        visit::visit_item_trait(self, item);
    }

    /// The structs that a macro is given to define.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let tokens: Vec<TokenTree> = item.mac.tokens.clone().into_iter().collect();
        let Some(first) = tokens.first().map(|token| token.span().start().line) else { return };
        for defined in tokens.windows(3) {
            if let [TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Group(body)] =
                defined
                && keyword == "struct"
            {
                let count = fields_of(body.stream());
                self.count(
                    Part::Fields,
                    count,
                    name.to_string(),
                    (first, name.span().start().line),
                );
            }
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if item.attrs.iter().any(of_tests) {
            return;
        }
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.attrs, &item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// The attributes of an item; none of one that has neither names nor limits.
pub(crate) fn attributes(item: &syn::Item) -> &[Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an attribute leaves an item to tests or to fuzzing.
pub(crate) fn of_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string();
    let words: Vec<&str> = condition.split(|c: char| !c.is_alphanumeric()).collect();
    list.path.is_ident("cfg")
        && ["test", "fuzzing"].iter().any(|word| words.contains(word))
        && !words.contains(&"not")
}

/// The first line of an item whose name is in `line`.
fn first(attributes: &[Attribute], line: usize) -> usize {
    attributes.first().map_or(line, |first| first.pound_token.span.start().line)
}

/// The number of fields in the body of a struct: names before a single colon.
fn fields_of(body: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let is_field = |pair: &&[TokenTree]| {
        matches!(pair, [TokenTree::Ident(_), TokenTree::Punct(colon)]
            if colon.as_char() == ':' && colon.spacing() == Spacing::Alone)
    };
    tokens.windows(2).filter(is_field).count()
}

fn begins(line: &str) -> bool {
    line.trim_start().starts_with(BECAUSE.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Vec<String> {
        let mut found = Found::default();
        found.read("a.rs", text).unwrap();
        found.wrong()
    }

    fn of_lines(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    // A step.\n".repeat(lines - 2))
    }

    fn of_fields(fields: usize) -> String {
        format!("struct S {{\n{}}}\n", "    a: u8,\n".repeat(fields))
    }

    fn of_methods(methods: usize) -> String {
        format!("trait T {{\n{}}}\n", "    fn m(&self);\n".repeat(methods))
    }

    #[test]
    fn what_is_over_a_limit_in_the_product_says_why() {
        assert_eq!(look(&crate::repository()).unwrap().wrong(), [""; 0]);
    }

    #[test]
    fn what_is_over_a_limit_is_refused_unless_a_sentence_says_why() {
        let sentence = "// Over the limit because it is a table.\n";
        for (allowed, over, counted) in [
            (of_fields(15), of_fields(16), "S has 16 fields, and 15 are allowed"),
            (of_methods(6), of_methods(7), "T has 7 methods, and 6 are allowed"),
            (of_lines(60), of_lines(61), "f has 61 lines, and 60 are allowed"),
        ] {
            assert_eq!(wrong(&allowed), [""; 0]);
            let told = wrong(&over);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with("a.rs:1: ") && told[0].contains(counted), "{told:?}");
            assert_eq!(wrong(&format!("{sentence}{over}")), [""; 0]);
            let among = format!("/// What it is.\n{sentence}#[must_use]\n{over}");
            assert_eq!(wrong(&among), [""; 0]);
            let needless = wrong(&format!("{sentence}{allowed}"));
            assert_eq!(needless, ["a.rs:1: this is not over a limit: take the sentence away"]);
        }
    }

    #[test]
    fn a_sentence_may_take_two_lines_and_has_an_end() {
        let over = of_lines(61);
        let two = format!("// Over the limit because it is\n// a table.\n{over}");
        assert_eq!(wrong(&two), [""; 0]);
        for cut in
            ["// Over the limit because it\n", "// Over the limit because\n", "// It is a table.\n"]
        {
            assert_eq!(wrong(&format!("{cut}{over}")).len(), 1, "{cut}");
        }
        let elsewhere =
            format!("// Over the limit because it is a table.\nconst A: u8 = 0;\n\n{over}");
        assert_eq!(wrong(&elsewhere).len(), 2);
    }

    #[test]
    fn methods_variants_and_functions_within_others_are_counted_and_tests_are_not() {
        let within = format!("impl A {{\nfn g() {{\n{}}}\n}}\n", of_lines(61));
        let told = wrong(&within);
        assert_eq!(told.len(), 2, "{told:?}");
        let variant = of_fields(16).replace("struct S", "enum E { V").replace("}\n", "} }\n");
        assert!(wrong(&variant)[0].contains("E::V has 16 fields"), "{:?}", wrong(&variant));
        for of_tests in ["test", "any(test, fuzzing)"] {
            assert_eq!(
                wrong(&format!("#[cfg({of_tests})]\nmod m {{\n{}}}\n", of_lines(61))),
                [""; 0]
            );
        }
        assert_eq!(wrong(&format!("#[cfg(not(test))]\n{}", of_lines(61))).len(), 1);
        let rows = |count| {
            format!(
                "options! {{\n/// A.\npub struct S {{\n{}}} }}\n",
                "a: b::C = d::E;\n".repeat(count)
            )
        };
        assert_eq!(wrong(&rows(15)), [""; 0]);
        assert!(
            wrong(&rows(16))[0].starts_with("a.rs:3: S has 16 fields"),
            "{:?}",
            wrong(&rows(16))
        );
    }
}
