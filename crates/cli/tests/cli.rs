//! The real binary, from outside: started as users start it, spoken to over sockets, killed, starved and cut off.
//! One integration binary, to save linking. Nothing here sleeps: every wait ends with an event or a deadline.
#![allow(clippy::unwrap_used)]

mod cli {
    mod client;
    mod crash;
    mod disk;
    mod ledger;
    mod power_cut;
    mod server;
}
