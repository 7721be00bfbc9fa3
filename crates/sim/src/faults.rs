//! How hostile one world is, drawn once from its seed: some worlds are calm, so that faults stay tellable apart.
//! Never rolled by two parts from one generator: each part has its own, so adding a part does not shift the others.
//! Read by the store twin and the clients.

/// Chances are in a thousand, per occasion.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    /// A commit or a load fails and says that nothing happened.
    pub(crate) refused: u32,
    /// A commit whose outcome is told as unknown.
    pub(crate) unknown: u32,
    /// A sync fails: the store stops.
    pub(crate) sync_fails: u32,
    /// The machine dies within a commit.
    pub(crate) crash: u32,
    /// Usual bound of a sync; the longer, the larger the batches.
    pub(crate) sync_ms_max: u64,
    /// A sync takes much longer than usual.
    pub(crate) slow_sync: u32,
    pub(crate) slow_sync_ms_max: u64,
    /// A load takes long.
    pub(crate) slow_load: u32,
    /// A peek cannot tell and a load is needed.
    pub(crate) blind_peek: u32,
    /// The store drops expired rows of its own accord.
    pub(crate) compaction: u32,
    /// A write set's row is held by somebody else's transaction.
    pub(crate) held: u32,
    /// A commit hangs on its way to a shared store: a lock, a slow link.
    pub(crate) hangs: u32,
    /// Whether a shared store sweeps by an index of its own.
    pub(crate) sweeps: bool,
    /// A request never arrives.
    pub(crate) request_lost: u32,
    /// A reply never arrives.
    pub(crate) reply_lost: u32,
    /// A request arrives a second time.
    pub(crate) repeated: u32,
    /// A caller gives up while its request is under way.
    pub(crate) gives_up: u32,
}

impl Faults {
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Self {
        let mut some = |max: u32| if rng.u8(0..3) == 0 { 0 } else { rng.u32(0..=max) };
        Self {
            refused: some(80),
            unknown: some(200),
            sync_fails: some(8),
            crash: some(25),
            sync_ms_max: [3, 30, 200][usize::from(some(255) as u8 % 3)],
            slow_sync: some(60),
            slow_sync_ms_max: 4_000,
            slow_load: some(400),
            blind_peek: [0, 300, 1_000][usize::from(some(255) as u8 % 3)],
            compaction: some(400),
            held: some(60),
            hangs: some(80),
            sweeps: some(255) % 2 == 1,
            request_lost: some(40),
            reply_lost: some(60),
            repeated: some(80),
            gives_up: some(40),
        }
    }

    /// A world in which nothing goes wrong: for the last look at what is left.
    pub(crate) fn none() -> Self {
        Self {
            refused: 0,
            unknown: 0,
            sync_fails: 0,
            crash: 0,
            sync_ms_max: 3,
            slow_sync: 0,
            slow_sync_ms_max: 1,
            slow_load: 0,
            blind_peek: 0,
            compaction: 0,
            held: 0,
            hangs: 0,
            sweeps: false,
            request_lost: 0,
            reply_lost: 0,
            repeated: 0,
            gives_up: 0,
        }
    }
}

/// Whether something with this chance in a thousand happens now.
pub(crate) fn strikes(rng: &mut fastrand::Rng, chance: u32) -> bool {
    rng.u32(0..1_000) < chance
}
