//! The path of a field, as Kubernetes writes it: `spec.containers[0].name`.

use std::fmt;

use winddown_shared::display::clean;

#[derive(Clone, Copy, Debug)]
pub(crate) enum PathStep<'a> {
    Key(&'a str),
    Index(usize),
}

/// A path that borrows its parents: building one costs nothing until it is printed.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Option<PathStep<'a>>,
}

impl<'a> Path<'a> {
    /// The file itself.
    pub const ROOT: Path<'static> = Path { parent: None, step: None };

    /// The field `key` of this one.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Some(PathStep::Key(key)) }
    }

    /// The last key of this path, unless it ends with an index.
    pub fn last_key(&self) -> Option<&'a str> {
        match self.step {
            Some(PathStep::Key(key)) => Some(key),
            _ => None,
        }
    }

    /// The path of the mapping around the one that this is a field of; lists in between do not count. `None` if that is
    /// the whole file.
    pub(crate) fn around_struct(&self) -> Option<&'a Path<'a>> {
        let own = self.parent?;
        let around = match own.step? {
            PathStep::Key(_) => own.parent?,
            PathStep::Index(_) => own.parent?.parent?,
        };
        around.step.is_some().then_some(around)
    }

    /// The item of this list with this index, from 0.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Some(PathStep::Index(index)) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            None => Ok(()),
            Some(PathStep::Index(index)) => write!(f, "[{index}]"),
            Some(PathStep::Key(key)) => {
                let simple = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let nested = self.parent.is_some_and(|parent| parent.step.is_some());
                match key.chars().all(simple) && !key.is_empty() {
                    true if nested => write!(f, ".{key}"),
                    true => f.write_str(key),
                    false => write!(f, "[{}]", Shortened(key)),
                }
            }
        }
    }
}

/// Text from a file, displayed on one line and truncated to 80 characters.
pub struct Shortened<'a>(pub &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_SHOWN_CHARS: usize = 80;
        let (short, end) = match self.0.char_indices().nth(MAX_SHOWN_CHARS) {
            Some((end, _)) => (&self.0[..end], "…"),
            None => (self.0, ""),
        };
        write!(f, "{}{end}", clean(short))
    }
}
