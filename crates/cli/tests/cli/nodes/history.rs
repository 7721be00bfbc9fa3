//! Clients' requests and replies, with their times. Never judges, and knows nothing of the product but its wire.
//! Filled by the callers, read by the checker.

use std::{
    io::{self, ErrorKind},
    sync::Mutex,
    time::Instant,
};

use super::super::client::Answer;

pub const SCOPE: &str = "INDEX_BUILD";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    pub effect_id: String,
    pub receipt: String,
}

impl Content {
    /// The content of the `turn`th seal by the holder of `token`; written as no second writer would write it.
    pub fn of(key: u64, token: u64, turn: u32) -> Self {
        let receipt = format!("{{ \"key\" : {key},\"token\":{token}.0 , \"turn\":{turn}e0,\t\"u\":\"\\u00fc\u{fc}\"}}");
        Self { effect_id: format!("E-{key}-{token}-{turn}"), receipt }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    Claim { lease_ms: u64, wait_ms: u64 },
    Seal { token: u64, content: Content },
    Release { token: u64 },
}

impl Ask {
    pub fn path(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "/v1/fences/claim",
            Self::Seal { .. } => "/v1/fences/seal",
            Self::Release { .. } => "/v1/fences/release",
        }
    }

    /// The token that is shown, where one is.
    pub fn token(&self) -> Option<u64> {
        match self {
            Self::Claim { .. } => None,
            Self::Seal { token, .. } | Self::Release { token } => Some(*token),
        }
    }

    /// The bytes of the request.
    pub fn body(&self, key: u64) -> String {
        format!("{{{}}}", self.members(key))
    }

    /// The bytes of the request as one command of a batch.
    pub fn command(&self, key: u64) -> String {
        let op = self.path().rsplit('/').next().unwrap();
        format!("{{\"op\":\"{op}\",{}}}", self.members(key))
    }

    fn members(&self, key: u64) -> String {
        let own = match self {
            // A wait is no part of a batch, and 0 is what its absence means.
            Self::Claim { lease_ms, wait_ms: 0 } => format!("\"lease_ms\":{lease_ms}"),
            Self::Claim { lease_ms, wait_ms } => format!("\"lease_ms\":{lease_ms},\"wait_ms\":{wait_ms}"),
            Self::Seal { token, content: Content { effect_id, receipt } } => {
                format!("\"token\":{token},\"effect_id\":\"{effect_id}\",\"receipt\":{receipt}")
            }
            Self::Release { token } => format!("\"token\":{token}"),
        };
        format!("\"scope\":\"{SCOPE}\",\"key\":{{\"index_hash\":\"{key}\"}},{own}")
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    New {
        token: u64,
    },
    Duplicate(Content),
    InFlight,
    Sealed {
        replay: bool,
    },
    Released,
    FencedOff,
    /// The same token sealed something else.
    OtherContent,
    /// The answer says that nothing was done, or the request never left.
    NothingDone,
    /// No answer, or one that says so: it may have happened, and may yet happen.
    Unknown,
    /// An answer that nobody may give.
    Strange(String),
}

impl Heard {
    pub fn answer(answer: io::Result<Answer>) -> Self {
        match answer {
            Ok(answer) => Self::read(answer.status, &answer.text()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Self::NothingDone,
            Err(_) => Self::Unknown,
        }
    }

    /// An answer by its status and its bytes.
    pub fn read(status: u16, text: &str) -> Self {
        let code = between(text, "\"code\":\"", "\"").unwrap_or_default();
        let decision = between(text, "\"decision\":\"", "\"").unwrap_or_default();
        let replay = || text.contains("\"replay\":true");
        let known = match (status, decision, code) {
            (201, "new", _) => number(text, "\"token\":").map(|token| Self::New { token }),
            (200, "duplicate", _) => content(text).map(Self::Duplicate),
            (200, "sealed", _) => Some(Self::Sealed { replay: replay() }),
            (200, "released", _) => Some(Self::Released),
            (409, _, "in-flight") => Some(Self::InFlight),
            (409, _, "fenced-off") => Some(Self::FencedOff),
            (409, _, "conflict") => Some(Self::OtherContent),
            (503, _, "store-unavailable") if text.contains("nothing was done") => Some(Self::NothingDone),
            (503, _, "store-unavailable") if text.contains("did not confirm") => Some(Self::Unknown),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Strange(format!("{status} {text}")))
    }

    /// The results of a batch, each by its own status and bytes.
    pub fn results(text: &str) -> Vec<Self> {
        let result = |part: &str| {
            let (status, body) = part.split_once(',').unwrap_or((part, ""));
            Self::read(status.parse().unwrap_or(0), body)
        };
        text.split("{\"status\":").skip(1).map(result).collect()
    }

    /// Whether asking again could bring an answer.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::NothingDone | Self::Unknown)
    }
}

fn content(text: &str) -> Option<Content> {
    let effect_id = between(text, "\"effect_id\":\"", "\"")?.to_owned();
    // The whole value and nothing else: the next member follows it.
    let receipt = between(text, ",\"receipt\":", ",\"first_seen_at\":")?.to_owned();
    Some(Content { effect_id, receipt })
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> Option<&'t str> {
    let rest = text.split_once(from)?.1;
    Some(rest.split_once(to)?.0)
}

fn number(text: &str, from: &str) -> Option<u64> {
    let rest = text.split_once(from)?.1;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// One request and what became of it. Times count from the start of the recording, by one monotonic clock.
#[derive(Clone, Debug)]
pub struct Op {
    pub key: u64,
    pub node: usize,
    pub ask: Ask,
    pub heard: Heard,
    pub start_us: u64,
    pub end_us: u64,
}

/// An effect that a client says it had, before it sealed it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Effect {
    pub key: u64,
    pub token: u64,
}

/// The recording.
pub struct History {
    origin: Instant,
    ops: Mutex<Vec<Op>>,
    effects: Mutex<Vec<Effect>>,
}

impl Default for History {
    fn default() -> Self {
        Self { origin: Instant::now(), ops: Mutex::default(), effects: Mutex::default() }
    }
}

impl History {
    pub fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    /// Sends a request, and records it with its reply and the times.
    pub fn record(&self, key: u64, node: usize, ask: &Ask, call: impl FnOnce() -> Heard) -> Heard {
        let start_us = self.now_us();
        let heard = call();
        let op = Op { key, node, ask: ask.clone(), heard: heard.clone(), start_us, end_us: self.now_us() };
        self.ops.lock().unwrap().push(op);
        heard
    }

    /// Many at once: they share their beginning and their end.
    pub fn record_all(&self, node: usize, asks: &[(u64, Ask)], start_us: u64, heard: &[Heard]) {
        let end_us = self.now_us();
        let ops = asks.iter().zip(heard).map(|((key, ask), heard)| Op {
            key: *key,
            node,
            ask: ask.clone(),
            heard: heard.clone(),
            start_us,
            end_us,
        });
        self.ops.lock().unwrap().extend(ops);
    }

    pub fn effect(&self, key: u64, token: u64) {
        self.effects.lock().unwrap().push(Effect { key, token });
    }

    pub fn ops(&self) -> Vec<Op> {
        self.ops.lock().unwrap().clone()
    }

    pub fn effects(&self) -> Vec<Effect> {
        self.effects.lock().unwrap().clone()
    }
}
