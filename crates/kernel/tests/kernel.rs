//! The kernel's rules, judged from outside: tables, sequences, oracles and properties.
//! One binary, to save linking. Time is a parameter everywhere; nothing here sleeps.
#![allow(clippy::unwrap_used)]

mod kernel {
    mod again;
    mod audit;
    mod claim;
    mod cursor;
    mod diff;
    mod dispatch_table;
    mod dispatch_table_letters;
    mod dispatch_table_redrive;
    mod dispatch_table_routes;
    mod doubt;
    mod fence_table;
    mod forget;
    mod item;
    mod jcs_vectors;
    mod job;
    mod json;
    mod json_oracle;
    mod key;
    mod lane_names;
    mod lane_properties;
    mod lane_world;
    mod mask;
    mod model;
    mod patch_vectors;
    mod properties;
    mod retry;
    mod seal;
    mod trace;
    mod version;
    mod world;
}
