//! The laws of the store, the teeth of the suite that checks them, and what only the embedded store promises.

#![allow(clippy::unwrap_used)]

mod store {
    mod damage;
    mod embedded;
    mod fixtures;
    mod harness;
    mod laws;
    mod teeth;
}
