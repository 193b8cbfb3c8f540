//! What pages say to type, by the word that says where.

use winddown_node_tests::packages::repository;
use winddown_node_tests::typed::{Typed, commands};

use crate::page::Page;

/// The commands of the blocks of a page that are marked with this word.
pub(crate) fn marked(page: &str, word: &str) -> Vec<Typed> {
    let read = Page::read(&repository().join(page));
    let blocks = read.blocks.iter().filter(|block| block.words() == ["console", "ignore", word]);
    blocks.flat_map(|block| commands(page, block.line, &block.lines)).collect()
}
