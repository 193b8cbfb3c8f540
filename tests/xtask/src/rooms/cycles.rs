//! Finds files of a crate that depend on each other.
//!
//! A module may refer to the modules above and below it, because that is how a folder is organized. Only paths into
//! another branch of the tree count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Source;
use super::paths::paths;

/// A module, by the segments of its path within the crate.
type Module = Vec<String>;

/// A dependency of one file on another.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    from: Module,
    to: Module,
}

/// Every edge that is part of a cycle, sorted.
pub(super) fn cycles(sources: &[Source]) -> Vec<Edge> {
    let modules: BTreeSet<&Module> = sources.iter().map(|source| &source.module).collect();
    let mut needs: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for source in sources {
        let named = paths(&code(&source.text));
        let named = named.iter().filter_map(|path| resolve(path, &source.module, &modules));
        let other =
            named.filter(|to| !to.starts_with(&source.module) && !source.module.starts_with(to));
        needs.entry(&source.module).or_default().extend(other);
    }
    of_a_cycle(&needs)
}

/// The same between the rooms of a crate, which are the modules in its root. What the root re-exports is of the room
/// that it comes from.
pub(super) fn between_rooms(sources: &[Source]) -> Vec<Edge> {
    let room_of = |source: &Source| source.module.get(..1).map(<[String]>::to_vec);
    let rooms: BTreeSet<Module> = sources.iter().filter_map(room_of).collect();
    let root = sources.iter().filter(|source| source.module.is_empty());
    let root: String =
        root.map(|source| source.text.replace("pub use ", "pub use self::")).collect();
    let exported: BTreeMap<String, Module> = paths(&root)
        .into_iter()
        .filter(|path| path.len() > 2)
        .filter_map(|mut path| Some((path.pop()?, vec![path.swap_remove(1)])))
        .collect();
    let mut needs: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for source in sources {
        let Some(room) = room_of(source).and_then(|room| rooms.get(&room)) else { continue };
        for path in paths(&code(&source.text)) {
            let [first, name, ..] = &*path else { continue };
            let room_or_name = rooms.get([name.clone()].as_slice()).or_else(|| exported.get(name));
            let to = room_or_name.filter(|to| first == "crate" && *to != room);
            needs.entry(room).or_default().extend(to);
        }
    }
    of_a_cycle(&needs)
}

/// The product's part of a source, without comments. Unit tests come last in a file.
fn code(text: &str) -> String {
    let code: Vec<&str> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    code.split("\nmod tests {").next().unwrap_or_default().to_owned()
}

fn of_a_cycle(needs: &BTreeMap<&Module, BTreeSet<&Module>>) -> Vec<Edge> {
    let edges = needs.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
    edges
        .filter(|(from, to)| reaches(to, from, needs))
        .map(|(from, to)| Edge { from: from.clone(), to: to.clone() })
        .collect()
}

/// The module that `path` refers to from within the module `from`.
fn resolve<'m>(
    path: &[String],
    from: &[String],
    modules: &BTreeSet<&'m Module>,
) -> Option<&'m Module> {
    let mut at = from.to_vec();
    let mut rest = path.iter().peekable();
    while let Some(word) = rest.next_if(|word| ["crate", "super", "self"].contains(&&***word)) {
        match &**word {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            _ => {}
        }
    }
    for name in rest {
        at.push(name.clone());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    modules.get(&at).copied()
}

fn reaches(from: &Module, to: &Module, needs: &BTreeMap<&Module, BTreeSet<&Module>>) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        let next = needs.get(module).into_iter().flatten().copied();
        open.extend(next.filter(|module| seen.insert(*module)));
    }
    false
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {}", self.from.join("::"), self.to.join("::"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        found_by(cycles, sources)
    }

    fn found_by(look: fn(&[Source]) -> Vec<Edge>, sources: &[(&str, &str)]) -> Vec<String> {
        let source = |(module, text): &(&str, &str)| Source {
            module: module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            path: module.replace("::", "/").into(),
            text: (*text).to_owned(),
        };
        let sources: Vec<Source> = sources.iter().map(source).collect();
        look(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_need_each_other_are_found_by_way_of_others_too() {
        let text = [
            ("a", "use super::b::f;"),
            ("b", "fn f() { crate::c::d::g() }"),
            ("c", ""),
            ("c::d", "use crate::a;"),
            ("e", "use crate::{a, b};"),
        ];
        assert_eq!(found(&text), ["a needs b", "b needs c::d", "c::d needs a"]);
    }

    #[test]
    fn what_is_above_and_below_in_the_tree_is_no_cycle() {
        let text = [
            ("", "mod a; pub use a::A; use crate::a::b::B;"),
            ("a", "mod b; use self::b::B;"),
            ("a::b", "use super::A; use crate::Root; // use crate::c;"),
            ("c", "use crate::a::b;\n#[cfg(test)]\nmod tests {\nuse super::super::a;\n}"),
        ];
        assert_eq!(found(&text), [""; 0]);
    }

    #[test]
    fn rooms_that_need_each_other_by_what_the_root_re_exports_are_found() {
        let text = [
            ("", "mod a; mod b; mod c;\npub use a::x::A;\npub use b::{self, B as Other};"),
            ("a", "mod x; use crate::b::B;"),
            ("a::x", "struct A;"),
            ("b", "use crate::{A, Root};"),
            ("c", "use crate::{A, b};"),
        ];
        assert_eq!(found_by(between_rooms, &text), ["a needs b", "b needs a"]);
    }
}
