//! A proxy that cuts its connections, at once or after some bytes, or forwards to another server. Called by tests.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU16, Ordering},
    },
    thread,
};

/// Forwards bytes to a server on 127.0.0.1.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

struct State {
    upstream: AtomicU16,
    refuse: AtomicBool,
    /// How many more bytes of clients may pass; negative for no bound.
    allowance: AtomicI64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy in front of a port on 127.0.0.1.
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            upstream: AtomicU16::new(upstream),
            refuse: AtomicBool::new(false),
            allowance: AtomicI64::new(-1),
            open: Mutex::default(),
        });
        let own = state.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|client| own.connect(client)));
        Self { port, state }
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every open connection now; new ones pass.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Lets this many more bytes of clients pass, then cuts every connection, once.
    pub fn cut_after(&self, bytes: u64) {
        self.state.allowance.store(bytes as i64, Ordering::SeqCst);
    }

    /// Forwards new connections to another port on 127.0.0.1; open ones stay.
    pub fn lead_to(&self, upstream: u16) {
        self.state.upstream.store(upstream, Ordering::SeqCst);
    }

    /// Sets whether new connections are refused; open ones stay.
    pub fn refuse(&self, refuse: bool) {
        self.state.refuse.store(refuse, Ordering::SeqCst);
    }
}

impl State {
    fn connect(self: &Arc<Self>, client: TcpStream) {
        if self.refuse.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.upstream.load(Ordering::SeqCst))) else { return };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        self.open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        let (to_server, to_client) = (self.clone(), self.clone());
        let (client_2, server_2) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || to_server.pass(client, server, true));
        thread::spawn(move || to_client.pass(server_2, client_2, false));
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, counted: bool) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let pass = if counted { self.spend(n) } else { n };
            if to.write_all(&buffer[..pass]).is_err() {
                break;
            }
            if pass < n {
                self.cut();
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    // How many of `n` bytes may pass. The cut happens once; afterwards there is no bound.
    fn spend(&self, n: usize) -> usize {
        let before = self.allowance.load(Ordering::SeqCst);
        if before < 0 {
            return n;
        }
        let left = before - n as i64;
        self.allowance.store(left.max(-1), Ordering::SeqCst);
        if left >= 0 { n } else { before as usize }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
