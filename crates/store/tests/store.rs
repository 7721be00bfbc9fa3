//! The laws of the store, the teeth of the suite that checks them, and what only the embedded store promises.

#![allow(clippy::unwrap_used)]

mod store {
    mod damage;
    mod embedded;
    mod fixtures;
    mod flawed;
    mod harness;
    mod laws;
    mod postgres;
    mod postgres_failover;
    mod postgres_items;
    mod postgres_lanes;
    mod postgres_nodes;
    mod postgres_rig;
    mod postgres_tls;
    mod postgres_tx;
    mod postgres_upgrade;
    mod redis;
    mod redis_cluster;
    mod redis_rig;
    mod teeth;
}
