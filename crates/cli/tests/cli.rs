//! The real binary, from outside: started as users start it, spoken to over sockets, killed, starved and cut off.
//! One integration binary, to save linking. Nothing here sleeps: every wait ends with an event or a deadline.
#![allow(clippy::unwrap_used)]

mod cli {
    mod acts;
    mod again;
    mod bad_input;
    mod bodies;
    mod check;
    mod claims;
    mod client;
    mod clock;
    mod commands;
    mod consume;
    mod contract;
    mod crash;
    mod credentials;
    mod disk;
    mod dispatch;
    mod exhaustion;
    mod explained;
    mod failed_sync;
    mod full_disk;
    mod gateway;
    mod hostile;
    mod in_doubt;
    mod ingest;
    mod kafka;
    mod lanes;
    mod ledger;
    mod listeners;
    mod lists;
    mod lookup;
    mod mistakes;
    mod modes;
    mod moving;
    mod nodes;
    mod openapi;
    mod power_cut;
    mod race;
    mod receipts;
    mod refusals;
    mod reload;
    mod sdk;
    mod server;
    mod shutdown;
    mod start;
    mod threads;
    mod traps;
    mod versions;
}
