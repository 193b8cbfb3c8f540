//! Parses command lines.

/// The values of `--name value` and `--name=value`, in order.
pub(super) fn values<'a>(
    arguments: &'a [String],
    name: &str,
) -> impl DoubleEndedIterator<Item = &'a str> {
    let value = move |(index, argument): (usize, &'a String)| match argument.strip_prefix(name)? {
        "" => arguments.get(index + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    };
    arguments.iter().enumerate().filter_map(value)
}

/// The value of the option; the last occurrence wins.
pub(super) fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    values(arguments, name).next_back()
}

/// Splits a line into words as systemd does: at whitespace outside of quotes.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', _) => word.get_or_insert_default().extend(letters.next()),
            (_, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, None) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
