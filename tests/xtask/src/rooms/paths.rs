//! The paths in a source: in `use` items, and everything else that starts with `crate`, `super` or `self`.

/// The paths in `text`, as lists of segments.
pub(super) fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for begin in begins(text) {
        let mut reader = Reader { rest: &text[begin..], found: &mut found };
        reader.tree(Vec::new());
    }
    found
}

/// The positions at which paths start.
fn begins(text: &str) -> impl Iterator<Item = usize> {
    ["crate::", "super::", "self::"].into_iter().flat_map(move |word| {
        text.match_indices(word).map(|(at, _)| at).filter(move |at| {
            let before = text[..*at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$')
        })
    })
}

/// Parses a path with its groups: `super::{a::B, c}`.
struct Reader<'a, 'f> {
    rest: &'a str,
    found: &'f mut Vec<Vec<String>>,
}

impl Reader<'_, '_> {
    fn tree(&mut self, mut path: Vec<String>) {
        loop {
            if self.takes("{") {
                while !self.takes("}") {
                    let before = self.rest.len();
                    self.tree(path.clone());
                    // Leaves the group if nothing was consumed: this is not a path.
                    if !self.takes(",") && before == self.rest.len() {
                        return;
                    }
                }
                return;
            }
            let name = self.name();
            if name.is_empty() {
                break;
            }
            path.push(name);
            if !self.takes("::") {
                break;
            }
        }
        if self.takes("as ") {
            self.name();
        }
        self.found.push(path);
    }

    fn name(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        name.to_owned()
    }

    fn takes(&mut self, word: &str) -> bool {
        match self.rest.trim_start().strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::paths;

    #[test]
    fn groups_are_taken_apart() {
        let text = "use super::{a::B, c::{self, D as E},\n    f,\n};\nlet x = crate::g::h(1);\n\
                    $crate::i::J; other_crate::k;";
        let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
        let wanted = ["crate::g::h", "super::a::B", "super::c::self", "super::c::D", "super::f"];
        assert_eq!(found, wanted);
    }
}
