//! `/wes/v1` through the real router, over a store in memory.

mod envelope;
mod executor;
mod lanes;
mod late;
mod letters;
mod poll;
mod publish;
mod serving;
mod transport;
mod world;
