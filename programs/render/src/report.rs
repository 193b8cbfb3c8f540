//! Reports of shutdowns and drains as text or HTML, and evictions as SVG.

mod html;
mod marks;
mod sentences;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use html::html;
pub use svg::evictions::evictions;
pub use text::text;
