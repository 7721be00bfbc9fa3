//! Items: each row of their table, sequences of commands, and any interleaving against a model.
//! Commands are written as texts, which `desk` reads, so that a table shows what is asked and what is answered.

mod arrivals;
pub mod desk;
mod follow_up;
mod ids;
mod model;
mod order;
mod play;
mod properties;
mod quarantine;
mod requests;
mod retire;
mod versions;
