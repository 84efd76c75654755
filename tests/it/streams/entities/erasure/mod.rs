//! Erasing entities: the effects of an erasure, and how it is carried out, page by page.

mod effects;
mod pages;
