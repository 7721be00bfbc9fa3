//! The HTTP front, 1.1 and 2: accepts connections, refuses malformed or slow requests, hands the others to a service.
//! Never looks into a body and knows no route: what a request means is the service's business.
//! Called by `cli`, which passes a listener, a router, the limits and a future that ends at shutdown.

mod accept;
mod alarm;
mod answer;
mod body;
mod budget;
mod chunk;
mod connection;
mod guard;
mod head;
mod http2;
mod limits;
mod link;
mod peer;
mod plain;
mod refusal;
mod reply;
mod scan;
mod seats;
mod sniff;
mod target;
mod tls;

pub use accept::{Drained, serve};
pub use body::{BodyError, RequestBody};
pub use budget::{Budget, Charge, NoRoom, Standing, Unbuffered};
pub use limits::{Limits, Refuse};
pub use peer::{PeerAddr, PeerThumbprint, Secured, client_network};
pub use refusal::{Cause, NO_ROOM_DETAIL as NO_ROOM, Refusal};
pub use seats::Proxies;
pub use tls::{ClientAuth, Error as TlsError, Tls};
