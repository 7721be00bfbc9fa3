//! Several nodes on one store: real processes, a real PostgreSQL or Redis between them, and real faults.
//! Requests and replies are recorded, and judged by a checker that shares no code with the product.

mod callers;
mod checker;
mod durability;
mod failover;
mod faults;
mod front;
mod history;
mod members;
mod outage;
mod redis;
mod rounds;
mod takeover;
mod teeth;
mod together;
mod town;
mod upgrade;
mod users;
mod verdicts;
