//! A receiver of webhooks on loopback: verifies what comes, keeps it in a ledger, answers as it is told, and can be
//! killed and started again on its port. The ledger outlives a kill, as a database would.

use std::{
    io::{BufReader, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    super::server::PATIENCE,
    delivery::{Delivery, hear},
    signed,
};

pub const SECRET: &str = "s3cret of the warehouse";

#[derive(Clone, Debug)]
pub enum Say {
    Status(u16),
    /// A status with more lines in its head, each with its end.
    With(u16, String),
    /// Nothing until [`Receiver::release`], then 200.
    Hold,
    /// 200, but not at once.
    Late(Duration),
    /// Nothing: the connection is closed.
    Close,
}

type Script = Box<dyn FnMut(&Delivery) -> Say + Send>;

struct State {
    ledger: Vec<Delivery>,
    /// Deliveries whose signature is wrong, and how.
    forged: Vec<String>,
    secrets: Vec<String>,
    script: Script,
    released: bool,
    /// Grows with every kill: threads of an earlier life end.
    life: u64,
    connections: Vec<TcpStream>,
}

#[derive(Clone)]
struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    // Waits as long as a condition holds, up to a span. Whether it ended in time.
    fn wait_while(&self, span: Duration, holds: impl FnMut(&mut State) -> bool) -> bool {
        !self.0.1.wait_timeout_while(self.lock(), span, holds).unwrap().1.timed_out()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    fn serve(&self, stream: TcpStream, life: u64) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut reader = BufReader::new(stream);
        loop {
            let delivery = hear(&mut reader)?;
            let say = {
                let mut state = self.lock();
                if state.life != life {
                    return None;
                }
                let unsigned = state.secrets.is_empty();
                let verdict = if unsigned { Ok(()) } else { signed::verify(&delivery, &state.secrets) };
                let say = if verdict.is_ok() { (state.script)(&delivery) } else { Say::Status(401) };
                state.forged.extend(verdict.err());
                state.ledger.push(delivery);
                say
            };
            self.0.1.notify_all();
            let (status, more) = match say {
                Say::Status(status) => (status, String::new()),
                Say::With(status, more) => (status, more),
                Say::Close => return None,
                Say::Hold => {
                    self.wait_while(PATIENCE, |state| !state.released && state.life == life);
                    (200, String::new())
                }
                Say::Late(span) => {
                    self.wait_while(span, |state| state.life == life);
                    (200, String::new())
                }
            };
            // Words for whoever reads the dead letters.
            let text = format!("said {status}");
            let answer =
                format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{more}\r\n{text}", text.len()).into_bytes();
            if self.lock().life != life {
                return None;
            }
            reader.get_mut().write_all(&answer).ok()?;
        }
    }
}

pub struct Receiver {
    pub port: u16,
    shared: Shared,
    listening: Option<JoinHandle<()>>,
}

impl Receiver {
    /// One that takes everything.
    pub fn start() -> Self {
        let state = State {
            ledger: Vec::new(),
            forged: Vec::new(),
            secrets: vec![SECRET.to_owned()],
            script: Box::new(|_| Say::Status(200)),
            released: false,
            life: 0,
            connections: Vec::new(),
        };
        // Below the ports that connections get by themselves: while it is dead, no other process takes it.
        let bound = || {
            let port = fastrand::u16(20_000..32_000);
            TcpListener::bind(("127.0.0.1", port)).ok().map(|listener| (port, listener))
        };
        let (port, listener) = (0..100).find_map(|_| bound()).unwrap();
        let mut own = Self { port, shared: Shared(Arc::new((Mutex::new(state), Condvar::new()))), listening: None };
        own.listen(listener);
        own
    }

    fn listen(&mut self, listener: TcpListener) {
        let shared = self.shared.clone();
        let life = shared.lock().life;
        self.listening = Some(thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut state = shared.lock();
                if state.life != life {
                    return;
                }
                state.connections.extend(stream.try_clone());
                let shared = shared.clone();
                thread::spawn(move || {
                    let closing = stream.try_clone();
                    shared.serve(stream, life);
                    // The ledger's copy would keep it open.
                    closing.map(|closing| closing.shutdown(Shutdown::Both))
                });
            }
        }));
    }

    /// Ends it as kill -9 would: nothing more is answered, every connection is cut, the port is free.
    pub fn kill(&mut self) {
        let Some(listening) = self.listening.take() else { return };
        self.shared.change(|state| {
            state.life += 1;
            for connection in state.connections.drain(..) {
                let _ = connection.shutdown(Shutdown::Both);
            }
        });
        // The thread that listens hears of it with the next connection.
        drop(TcpStream::connect(self.address()));
        listening.join().unwrap();
    }

    /// On its port again, with its ledger.
    pub fn restart(&mut self) {
        assert!(self.listening.is_none(), "it lives");
        self.listen(TcpListener::bind(self.address()).unwrap());
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hooks/dispatch?of=us", self.port)
    }

    /// Sets its answers from now on.
    pub fn script(&self, script: impl FnMut(&Delivery) -> Say + Send + 'static) {
        let mut state = self.shared.lock();
        (state.script, state.released) = (Box::new(script), false);
    }

    /// Sets one answer for every delivery from now on.
    pub fn say(&self, say: Say) {
        self.script(move |_| say.clone());
    }

    /// The secrets that it knows from now on. Without any it verifies nothing.
    pub fn knows(&self, secrets: &[&str]) {
        self.shared.lock().secrets = secrets.iter().map(|secret| (*secret).to_owned()).collect();
    }

    /// Answers the deliveries that it holds back, and from now on every one.
    pub fn release(&self) {
        self.shared.change(|state| {
            state.released = true;
            state.script = Box::new(|_| Say::Status(200));
        });
    }

    /// Everything that came so far. All of it is signed as it should be.
    #[track_caller]
    pub fn heard(&self) -> Vec<Delivery> {
        let state = self.shared.lock();
        assert_eq!(state.forged, Vec::<String>::new());
        state.ledger.clone()
    }

    /// Everything, as soon as there are so many.
    #[track_caller]
    pub fn until(&self, count: usize) -> Vec<Delivery> {
        self.until_for(count, PATIENCE)
    }

    #[track_caller]
    pub fn until_for(&self, count: usize, patience: Duration) -> Vec<Delivery> {
        let enough = self.shared.wait_while(patience, |state| state.ledger.len() < count && state.forged.is_empty());
        let heard = self.heard();
        assert!(enough, "{count} deliveries never came, only {}", heard.len());
        heard
    }

    /// The last one of so many.
    #[track_caller]
    pub fn nth(&self, count: usize) -> Delivery {
        self.until(count).swap_remove(count - 1)
    }

    pub fn count(&self) -> usize {
        self.shared.lock().ledger.len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.kill();
    }
}
