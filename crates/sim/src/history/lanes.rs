//! The history of lanes in one world: publications, attempts, polls, people's acts, and the lanes at the end.
//! Never holds a type of the kernel: the auditor reads this and nothing else. Written by the recorder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::HistoryStamp;

/// A question about lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneAsk {
    /// To publish an event.
    Publish {
        /// The publisher's id of it.
        id: String,
        /// Where it goes.
        warehouse: String,
        /// Which of its bodies.
        body: u8,
        /// The event that it cancels.
        cancels: Option<String>,
    },
    /// To stop a lane.
    Pause,
    /// To let it go on.
    Resume,
    /// To give up its head.
    Skip {
        /// The position of the head.
        seq: u64,
    },
    /// To send a dead letter again.
    Redrive {
        /// Where it died first.
        seq: u64,
        /// The event.
        id: String,
    },
    /// To give a dead letter up.
    Discard {
        /// Where it died first.
        seq: u64,
    },
    /// For the next events of a polled lane.
    Poll {
        /// After this position.
        after: u64,
        /// So many at most.
        limit: usize,
    },
    /// That all up to a position was received.
    Ack {
        /// The position.
        upto: u64,
    },
}

/// The answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneAnswer {
    /// The event is in its lane.
    Published {
        /// The lane's name.
        lane: String,
        /// The position in it.
        seq: u64,
        /// The state of the event that it cancels.
        original: Option<&'static str>,
        /// Whether it was there before.
        replay: bool,
    },
    /// Done as asked.
    Done {
        /// Whether it was so before.
        replay: bool,
    },
    /// Events with their positions.
    Page(Vec<(u64, String)>),
    /// Not done, for this reason.
    Refused(&'static str),
}

/// The outcome of a request about a lane, as far as its sender can know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneOutcome {
    /// It was answered.
    Answered(LaneAnswer),
    /// It certainly did not happen.
    NotApplied,
    /// It may have happened.
    Maybe,
}

/// One request about a lane.
#[derive(Clone, Debug)]
pub struct LaneOp {
    /// The run of the store it was sent in.
    pub run: usize,
    /// The node of that run it was sent to.
    pub node: usize,
    /// The lane's name; that of a publication is only known from its answer.
    pub lane: String,
    /// The question.
    pub ask: LaneAsk,
    /// When it was handed to the engine.
    pub invoked: HistoryStamp,
    /// When its sender knew what can be known.
    pub closed: Option<HistoryStamp>,
    /// Its outcome.
    pub outcome: LaneOutcome,
}

/// A receiver's decision about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It has it.
    Yes,
    /// It has it, and the answer was lost.
    YesUnheard,
    /// It does not have it, and asks for so many milliseconds.
    Later {
        /// How long it asks to wait.
        wish_ms: u64,
    },
    /// The transport failed before anybody could say anything.
    Away,
    /// It is gone for good.
    Gone,
    /// It never takes this event.
    Never,
}

/// One attempt as its receiver saw it.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The run and the node that sent it.
    pub node: (usize, usize),
    /// Whether that node had the store to itself.
    pub alone: bool,
    /// The lane's name.
    pub lane: String,
    /// The position.
    pub seq: u64,
    /// The event.
    pub id: String,
    /// Whether a person has sent it again.
    pub redrive: bool,
    /// Whether its bytes are those that were published.
    pub intact: bool,
    /// When it left.
    pub began: HistoryStamp,
    /// When the receiver had decided; none where that was never.
    pub ended: Option<HistoryStamp>,
    /// Its decision.
    pub said: Option<Said>,
}

/// That a node told of a death.
#[derive(Clone, Debug)]
pub struct DeathNotice {
    /// The lane's name.
    pub lane: String,
    /// Where the letter is.
    pub seq: u64,
    /// Its event.
    pub id: String,
    /// Why it died.
    pub reason: &'static str,
    /// When it was told.
    pub told: HistoryStamp,
}

/// A dead letter at the end.
#[derive(Clone, Debug)]
pub struct LetterLeft {
    /// Its event.
    pub id: String,
    /// Why it died.
    pub reason: &'static str,
    /// Its outcome.
    pub fate: &'static str,
    /// Its new position, where it was sent again.
    pub redriven_to: Option<u64>,
    /// The lane that it died in last, or was sent again in.
    pub home: String,
}

/// One lane at the end.
#[derive(Clone, Debug, Default)]
pub struct LaneLeft {
    /// Whether its receiver comes for the events.
    pub polled: bool,
    /// All up to here is settled.
    pub settled: u64,
    /// The last position.
    pub tail: u64,
    /// Whether it is stopped: by a person, by its receiver or by a dead letter.
    pub stands: bool,
    /// Whether its head has failed.
    pub retrying: bool,
    /// The events that are in it, by position.
    pub entries: BTreeMap<u64, String>,
    /// The dead letters, by the position that they died at first.
    pub letters: BTreeMap<u64, LetterLeft>,
}

/// Everything that happened to lanes.
#[derive(Clone, Debug, Default)]
pub struct LaneHistory {
    /// Every request.
    pub ops: Vec<LaneOp>,
    /// Every attempt to deliver an event, in the order in which they left.
    pub sendings: Vec<Sending>,
    /// Every death that was told of.
    pub deaths: Vec<DeathNotice>,
    /// The line at which a node ended while its run went on.
    pub node_ends: BTreeMap<(usize, usize), usize>,
    /// The runs in which a node was held, so that others may have taken its lanes.
    pub paused_runs: BTreeSet<usize>,
    /// The lanes at the end, by name; none where the last run could not start.
    pub left: Option<BTreeMap<String, LaneLeft>>,
    /// Whether receivers were well and time passed until then: what is not stopped must have left.
    pub drained: bool,
}

impl LaneOp {
    /// The answer, where there is one.
    pub fn answer(&self) -> Option<&LaneAnswer> {
        match &self.outcome {
            LaneOutcome::Answered(answer) => Some(answer),
            LaneOutcome::NotApplied | LaneOutcome::Maybe => None,
        }
    }
}

impl fmt::Display for LaneOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(answer) => write!(f, "{answer:?}"),
            Self::NotApplied => write!(f, "not applied"),
            Self::Maybe => write!(f, "unknown"),
        }
    }
}
