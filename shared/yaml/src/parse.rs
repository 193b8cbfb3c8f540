//! Parses text into a tree.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use granit_parser::{Event, Marker, Options, Parser, ScalarStyle, Span, Tag};

use super::{Key, MAX_DEPTH, MAX_NODES, Position, Problem, Scalar, Value, YamlNode};

/// What is wrong with a file without a document.
pub const EMPTY: &str = "the file is empty: nothing but comments and blanks";

/// Parses the only document in `text`.
///
/// Documents without content (comments between two `---`) are skipped. The caller limits the size of `text`; the depth
/// and the number of values, with aliases followed, are limited here.
///
/// # Errors
/// The first syntax error, no document, a second one, a duplicate key, a tag that is not understood, or a limit that is
/// exceeded.
pub fn parse(text: &str) -> Result<Rc<YamlNode>, Problem> {
    parse_if_any(text)?.ok_or_else(|| Problem::of_file(EMPTY))
}

/// Parses as [`parse`] does, but returns `None` if there is no document.
///
/// # Errors
/// Those of [`parse`], without the one for no document.
pub fn parse_if_any(text: &str) -> Result<Option<Rc<YamlNode>>, Problem> {
    let mut tree = Tree::default();
    let mut document: Option<Rc<YamlNode>> = None;
    for event in events(text) {
        let (event, span) = event?;
        let Some(root) = tree.take(event, span)? else { continue };
        if root.is_null() {
            continue;
        }
        if document.is_some() {
            let what = "a second document starts here: write one per file";
            return Err(Problem::new(root.at, "", what));
        }
        document = Some(root);
    }
    Ok(document)
}

/// Parses the first document in `text` as the programs of Kubernetes read files that they did not always read strictly:
/// of keys that occur twice the last one counts, and nothing after the first document is looked at. `None` if that
/// document has no content. The limits are those of [`parse`].
///
/// # Errors
/// The first syntax error of that document, a tag that is not understood, or a limit that is exceeded.
pub fn parse_first_leniently(text: &str) -> Result<Option<Rc<YamlNode>>, Problem> {
    let mut tree = Tree { last_key_counts: true, ..Tree::default() };
    for event in events(text) {
        let (event, span) = event?;
        if let Some(root) = tree.take(event, span)? {
            return Ok(Some(root).filter(|root| !root.is_null()));
        }
    }
    Ok(None)
}

fn events(text: &str) -> impl Iterator<Item = Result<(Event<'_>, Span), Problem>> {
    let mut options = Options::default();
    options.emit_comments = false;
    Parser::new_from_str_with_options(text, options).map(|event| {
        event.map_err(|error| {
            let what = format!("this is not valid YAML or JSON: {}", error.info());
            Problem::new(position(error.marker()), "", what)
        })
    })
}

fn position(mark: &Marker) -> Position {
    Position { line: mark.line().max(1), column: mark.col() + 1 }
}

/// The tree as far as it has been built.
#[derive(Default)]
struct Tree {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<YamlNode>>,
    nodes: usize,
    /// Whether a key may occur twice in a mapping; otherwise that is a problem.
    last_key_counts: bool,
}

/// A list or mapping that is not complete yet.
struct Open {
    at: Position,
    anchor: usize,
    holds: Holds,
}

enum Holds {
    List(Vec<Rc<YamlNode>>),
    Map {
        entries: Vec<(Key, Rc<YamlNode>)>,
        seen: HashSet<Rc<str>>,
        key: Option<Key>,
        merge: Vec<Rc<YamlNode>>,
    },
}

// === impl Tree ===

impl Tree {
    /// Processes one event; returns the root once it is complete.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<Option<Rc<YamlNode>>, Problem> {
        let at = position(&span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = is_text_tag(tag.as_deref(), at)?;
                let plain = style == ScalarStyle::Plain && !is_text;
                let scalar = Scalar { text: text.into_owned(), plain };
                self.put(
                    YamlNode { at, value: Value::Scalar(scalar), weight: 1, height: 0 },
                    anchor,
                )
            }
            Event::SequenceStart(_, anchor, tag) => {
                is_text_tag(tag.as_deref(), at)?;
                self.open(at, anchor, Holds::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                is_text_tag(tag.as_deref(), at)?;
                let (entries, seen) = (Vec::new(), HashSet::new());
                self.open(at, anchor, Holds::Map { entries, seen, key: None, merge: Vec::new() })
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => {
                    let anchor = open.anchor;
                    let node = open.close(self.last_key_counts)?;
                    self.put(node, anchor)
                }
                None => Ok(None),
            },
            Event::Alias(id) => match self.anchors.get(&id).cloned() {
                Some(node) => self.place(node, at),
                None => Err(Problem::new(at, "", "this alias refers to the value it is part of")),
            },
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn open(
        &mut self,
        at: Position,
        anchor: usize,
        holds: Holds,
    ) -> Result<Option<Rc<YamlNode>>, Problem> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.open.push(Open { at, anchor, holds });
        Ok(None)
    }

    fn put(&mut self, node: YamlNode, anchor: usize) -> Result<Option<Rc<YamlNode>>, Problem> {
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let at = node.at;
        self.place(node, at)
    }

    /// Adds a complete value to its container, or returns it if it is the root.
    fn place(&mut self, node: Rc<YamlNode>, at: Position) -> Result<Option<Rc<YamlNode>>, Problem> {
        // The values inside were counted already; only those that an alias repeats are new.
        let added = if node.at == at { 1 } else { node.weight };
        self.nodes = self.nodes.saturating_add(added);
        if self.nodes > MAX_NODES {
            let what = format!("more than {MAX_NODES} values with all aliases followed");
            return Err(Problem::new(at, "", what));
        }
        if self.open.len() + node.height > MAX_DEPTH {
            return Err(too_deep(at));
        }
        let Some(open) = self.open.last_mut() else { return Ok(Some(node)) };
        match &mut open.holds {
            Holds::List(items) => items.push(node),
            Holds::Map { entries, seen, key, merge } => match key.take() {
                None => *key = Some(key_of(&node, at)?),
                Some(k) if &*k.text == "<<" => merge.push(node),
                Some(k) => {
                    if !seen.insert(Rc::clone(&k.text)) && !self.last_key_counts {
                        let first = entries.iter().find(|(e, _)| e.text == k.text);
                        let line = first.map_or(at.line, |(e, _)| e.at.line);
                        let what = format!(
                            "this key is written twice, first in line {line}: remove one of them"
                        );
                        return Err(Problem::new(k.at, "", what));
                    }
                    entries.push((k, node));
                }
            },
        }
        Ok(None)
    }
}

// === impl Open ===

impl Open {
    fn close(self, last_key_counts: bool) -> Result<YamlNode, Problem> {
        let at = self.at;
        let value = match self.holds {
            Holds::List(items) => Value::List(items),
            Holds::Map { mut entries, mut seen, merge, .. } => {
                if last_key_counts && seen.len() < entries.len() {
                    let mut later = HashSet::new();
                    entries.reverse();
                    entries.retain(|(key, _)| later.insert(Rc::clone(&key.text)));
                    entries.reverse();
                }
                for source in &merge {
                    merge_into(&mut entries, &mut seen, source)?;
                }
                Value::Map(entries)
            }
        };
        let (weight, height) = match &value {
            Value::List(items) => measure(items.iter()),
            Value::Map(entries) => measure(entries.iter().map(|(_, node)| node)),
            Value::Scalar(_) => (0, 0),
        };
        Ok(YamlNode { at, value, weight, height: height + 1 })
    }
}

fn measure<'a>(nodes: impl Iterator<Item = &'a Rc<YamlNode>>) -> (usize, usize) {
    nodes.fold((1, 0), |(weight, height), node| {
        (weight.saturating_add(node.weight), height.max(node.height))
    })
}

/// Merges `<<: *other`: adds the keys that the mapping does not have itself.
fn merge_into(
    entries: &mut Vec<(Key, Rc<YamlNode>)>,
    seen: &mut HashSet<Rc<str>>,
    source: &Rc<YamlNode>,
) -> Result<(), Problem> {
    match &source.value {
        Value::Map(more) => {
            for (key, node) in more {
                if seen.insert(Rc::clone(&key.text)) {
                    entries.push((key.clone(), Rc::clone(node)));
                }
            }
            Ok(())
        }
        Value::List(items) if items.iter().all(|i| matches!(i.value, Value::Map(_))) => {
            items.iter().try_for_each(|item| merge_into(entries, seen, item))
        }
        _ => Err(Problem::new(source.at, "", "`<<` merges a mapping or a list of mappings")),
    }
}

fn key_of(node: &YamlNode, at: Position) -> Result<Key, Problem> {
    match &node.value {
        Value::Scalar(scalar) if !node.is_null() => {
            Ok(Key { text: scalar.text.as_str().into(), at })
        }
        _ => {
            let what = format!("a key must be a string, this is {}", node.kind());
            Err(Problem::new(at, "", what))
        }
    }
}

/// Whether a tag forces text; no other tag is understood.
fn is_text_tag(tag: Option<&Tag>, at: Position) -> Result<bool, Problem> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema_tag("str") => Ok(true),
        Some(tag) if ["map", "seq"].iter().any(|t| tag.is_yaml_core_schema_tag(t)) => Ok(false),
        // The tag is not quoted: an unquoted secret that begins with `!` is a tag, and errors are logged.
        Some(_) => Err(Problem::new(at, "", "this tag is not understood: remove it")),
    }
}

fn too_deep(at: Position) -> Problem {
    Problem::new(at, "", format!("nested deeper than {MAX_DEPTH} levels"))
}
