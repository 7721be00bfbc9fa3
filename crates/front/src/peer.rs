//! The client of a connection, as request extensions.
//! Never decides what a client may do: the credential check looks up the thumbprint.
//! Called by `accept` and `connection`, which set the extensions; the service reads them.

use std::net::{IpAddr, SocketAddr};

/// The remote address of the socket, which may be a proxy's. Requests on the fast path do not carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// Present where the connection uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Secured;

/// SHA-256 of the client certificate's DER form: 64 lower-case hex digits. Present only where the client showed a
/// certificate that the configured authority signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerThumbprint(pub String);

/// The extensions of every request of one connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) addr: SocketAddr,
    /// Set where the connection uses TLS.
    pub(super) secured: Option<Secured>,
    pub(super) thumbprint: Option<PeerThumbprint>,
    pub(super) serves: Serves,
}

/// Which requests of a connection are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    All,
    /// The connection is past the bounds. A probe is answered, any other request gets 503; then the connection ends.
    Probes,
}

/// The address that counts as one client: of an IPv6 address its /64, since one client usually has all of it.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}
