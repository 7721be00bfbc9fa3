//! Real servers for tests: PostgreSQL (alone or with a standby), Redis, a Redis Cluster, Kafka, nginx, a cutting proxy;
//! and waiting for what they do. Each in a temporary folder on a free port, killed on drop. Panics where a test could not go on anyway.
//! Never used by the product. Called by tests; `bench` uses `programs`.

#![allow(clippy::panic, clippy::unwrap_used)]

mod cluster;
pub mod contract;
mod kafka;
mod nginx;
pub mod openapi;
mod pair;
mod postgres;
pub mod programs;
mod proxy;
mod redis;
mod server;
mod slow_clock;
pub mod wait;

pub use cluster::Cluster;
pub use kafka::Kafka;
pub use nginx::Nginx;
pub use pair::Pair;
pub use postgres::PostgresServer;
pub use proxy::Proxy;
pub use redis::RedisServer;
