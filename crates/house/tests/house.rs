//! Keeps the house true: what the documents say exists, what exists is documented, and layers stay layers.
//! Never tests behaviour: that is the business of each crate.
#![allow(clippy::unwrap_used)]

mod house {
    mod decisions;
    mod documents;
    mod errors;
    mod exhaustive;
    mod layers;
    mod names;
    mod repo;
    mod security;
    mod snapshot;
    mod sources;
}
