//! Keeps the house true: documents name only things that exist, all of these are documented, and layers stay layers.
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
