//! The kernel's rules, judged from outside: tables, sequences, oracles and properties.
//! One binary, to save linking. Time is a parameter everywhere; nothing here sleeps.
#![allow(clippy::unwrap_used)]

mod kernel {
    mod again;
    mod claim;
    mod diff;
    mod fence_table;
    mod json;
    mod json_oracle;
    mod key;
    mod mask;
    mod model;
    mod properties;
    mod seal;
    mod trace;
    mod version;
    mod world;
}
