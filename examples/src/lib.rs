//! Shared by the larger examples: HTTP with JSON, and programs that are started and killed.
//! Never knows what an example is about. Called by `examples/nexa`, `examples/documents` and their tests.

pub mod documents;
pub mod http;
pub mod nexa;
pub mod programs;
