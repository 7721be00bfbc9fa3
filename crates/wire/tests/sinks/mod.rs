//! Webhooks against a receiver on a real socket that may answer anything, or nothing.

mod addresses;
mod answers;
mod patience;
mod receiver;
mod secured;
mod signed;
