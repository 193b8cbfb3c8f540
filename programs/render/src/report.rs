//! Reports of shutdowns and drains as text or HTML.

mod html;
mod marks;
mod sentences;
#[cfg(test)]
mod tests;
mod text;

pub use html::html;
pub use text::text;
