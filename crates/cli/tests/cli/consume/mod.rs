//! `fencepost consume`, with a real broker and a handler that remembers, fails and dies as it is told: each message has its
//! effect once, whoever is killed, and no offset moves before its seal.

mod begin;
mod crashes;
mod dead;
mod flags;
mod group;
mod order;
mod pending;
mod scene;
