//! Who is at the other end of a connection, as request extensions.
//! Never decides what a peer may do: a thumbprint is a claim that the credential check looks up.
//! Put in by the connection, read by the service.

use std::net::{IpAddr, SocketAddr};

/// The address of the socket's other end: a proxy's, where there is one. Not told with plain requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// Present where the connection is TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Secured;

/// SHA-256 of the client certificate's DER form, 64 lower-case hex digits. Present only where the
/// client showed a certificate that the configured client authority signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerThumbprint(pub String);

/// What every request of one connection is marked with.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) addr: SocketAddr,
    /// Whether over TLS.
    pub(super) secured: Option<Secured>,
    pub(super) thumbprint: Option<PeerThumbprint>,
    pub(super) serves: Serves,
}

/// Which requests of a connection are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    All,
    /// The connection is one too many: a probe is answered, anything else is 503, and either ends it.
    Probes,
}

/// One client, as far as its address tells: a client with an IPv6 address usually has a whole /64.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}
