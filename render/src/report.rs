//! How a shutdown or a drain went, as text, as a picture and as a page for a browser, and evictions as a picture.

mod html;
mod marks;
mod sentences;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use html::html;
pub use svg::evictions::evictions;
pub use svg::svg;
pub use text::text;
