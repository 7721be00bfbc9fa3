//! Messages of a queue, each with its effect once: claims, hands over, seals, and only then says that a message may be
//! acknowledged. Never talks to a queue itself, and never acknowledges a copy whose first one is still pending.
//! Called by consumers in users' own code, and by `fencepost consume`.

mod letter;
mod message;

use std::{fmt::Display, time::Duration};

use bytes::Bytes;
use fencepost_kernel::{Millis, fence, fence::body::Body, json};

use crate::{Claim, Claimed, Done, Error, Fencepost, engine};

pub use letter::{DeadMessage, DeadMessageReason};
pub use message::{Message, dedupe_id, field};

/// The scope that messages are fenced under.
pub const SCOPE: &str = "QUEUE_MESSAGE";

/// Default number of attempts before a message is dead.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 10;

/// How long a second copy waits for the first one's end before it is handed back to the queue.
const WAIT: Duration = Duration::from_secs(5);
/// How long a seal is tried on a store that does not answer: the effect has happened, so giving up risks a second one.
const SEAL_FOR: Duration = Duration::from_secs(300);
/// The pauses between attempts: the first, and the bound of the doubling.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why a handler did not come to its end, in the words that matter to the next attempt.
#[derive(Debug)]
pub enum HandlerFailure<E> {
    /// Nothing happened, and it may go better later. Counts as an attempt.
    Temporary {
        /// The handler's error.
        error: E,
        /// How long to wait at least, where the handler says so.
        after: Option<Duration>,
    },
    /// Nothing happened, since the service behind the handler is away. No message dies of that.
    Away(E),
    /// Nothing happened, and nothing ever will: to the dead letters.
    Permanent(E),
    /// It may have happened: the claim keeps its lease, then the next attempt is told.
    Unknown(E),
}

/// The next step for a message.
pub enum MessageVerdict {
    /// Its effect is sealed: acknowledge it.
    Acknowledge {
        /// The id of the effect.
        effect_id: String,
        /// Whether an earlier copy had the effect.
        replayed: bool,
    },
    /// Not sealed: do not acknowledge it, and hand it in again.
    Redeliver {
        /// How long to wait before.
        after: Duration,
        /// The cause, for logs.
        because: Because,
    },
    /// It is not to be tried any more. [`DeadMessage::bury`] it, and acknowledge it only after that.
    Dead(Box<DeadMessage>),
}

/// Why a message must be handed in again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A first copy is still pending.
    InFlight,
    /// The outcome of an earlier attempt must be resolved by a person. Until then the message stays where it is.
    InDoubt,
    /// The lease ran out while it was worked on, and another consumer was let in.
    FencedOff,
    /// The lease ran out while it was worked on, and a person has resolved the key.
    Resolved(String),
    /// The handler failed for now.
    Temporary(String),
    /// The handler is away.
    Away(String),
    /// The handler may have had the effect or not.
    Unknown(String),
    /// The dead letter could not be sent.
    Unburied(String),
    /// The store does not answer.
    Store(String),
    /// The store has stopped for good: this process will seal nothing more.
    Stopped(String),
}

/// A verdict, with facts for the logs.
pub struct Handled {
    /// The key that the effect is fenced under.
    pub idempotency_key: String,
    /// The fence's decision: `new`, `duplicate`, `in_flight`, `conflict`, `in_doubt`, or `unavailable`.
    pub decision: &'static str,
    /// The effect that stands under the key, where it is sealed: of this message, of an earlier copy, or in a conflict of
    /// the message that came first.
    pub effect_id: Option<String>,
    /// Which attempt it was; 0 where none was made.
    pub attempt: u32,
    /// The next step for the message.
    pub verdict: MessageVerdict,
}

/// Handles messages under fences. Clones share the store. Groups that each want every message need a tenant each.
#[derive(Clone)]
pub struct Consumer {
    once: Fencepost,
    attempts_max: u32,
    wait: Duration,
}

impl Consumer {
    /// A consumer whose fences are in `once`. Refused where the policy has no scope for messages.
    pub fn new(once: Fencepost) -> Result<Self, Error> {
        let own = Self { once, attempts_max: ATTEMPTS_MAX_DEFAULT, wait: WAIT };
        let nothing = String::new;
        own.command(&Message {
            topic: nothing(),
            partition: 0,
            offset: 0,
            key: nothing(),
            dedupe_id: nothing(),
            body: Bytes::new(),
        })?;
        Ok(own)
    }

    /// How often a message is tried before it is dead; at least once.
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.attempts_max = attempts_max.max(1);
        self
    }

    /// How long a copy waits for the first one's end before it is to be handed in again.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Whose messages they are.
    pub fn tenant(&self) -> &str {
        self.once.tenant.as_str()
    }

    /// The Fencepost below.
    pub fn fencepost(&self) -> &Fencepost {
        &self.once
    }

    /// Has the effect of a message once, and says whether it may be acknowledged. The lease is renewed while `handler` runs.
    /// A dropped future is not a release.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let once = fencepost::Fencepost::open(dir.path()).await?;
    /// use fencepost::{Done, queue::{Consumer, HandlerFailure, Message, MessageVerdict}};
    /// let consumer = Consumer::new(once.tenant("queue:billing"))?;
    /// let message = Message {
    ///     topic: "orders".into(), partition: 3, offset: 41, key: "o-7".into(),
    ///     dedupe_id: "offset:41".into(), body: r#"{"total":12}"#.into(),
    /// };
    /// for copy in 0..2 {
    ///     let handled = consumer.handle(&message, |message, _claim| async {
    ///         Ok::<_, HandlerFailure<std::io::Error>>(Done::new(format!("invoice of {}", message.key), "{}"))
    ///     });
    ///     match handled.await.verdict {
    ///         MessageVerdict::Acknowledge { replayed, .. } => assert_eq!(replayed, copy == 1), // now commit the offset
    ///         MessageVerdict::Redeliver { .. } => {} // wait, and hand it in again
    ///         MessageVerdict::Dead(letter) => drop(letter.bury(async { Ok::<_, String>("orders.dead/0/9".into()) }).await),
    ///     }
    /// }
    /// # drop(consumer);
    /// # once.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn handle<'m, E, F>(&self, message: &'m Message, handler: impl FnOnce(&'m Message, Claim) -> F) -> Handled
    where
        E: Display,
        F: Future<Output = Result<Done, HandlerFailure<E>>>,
    {
        let command = match self.command(message) {
            Ok(command) => command,
            Err(error) => return refused(String::new(), later(Because::Store(error.to_string()))),
        };
        let idempotency_key = command.target.key.to_string();
        let done = |decision, attempt, verdict| {
            let effect_id = match &verdict {
                MessageVerdict::Acknowledge { effect_id, .. } => Some(effect_id.clone()),
                MessageVerdict::Redeliver { .. } | MessageVerdict::Dead(_) => None,
            };
            Handled { idempotency_key, decision, effect_id, attempt, verdict }
        };
        let claim = match self.once.enter(command, self.wait).await {
            Ok(Claimed::New(claim)) => claim,
            Ok(Claimed::Duplicate(outcome)) => {
                let verdict = MessageVerdict::Acknowledge { effect_id: outcome.effect_id, replayed: true };
                return done("duplicate", 0, verdict);
            }
            Err(Error::InFlight { lease_expires }) => {
                return done("in_flight", 0, in_flight(lease_expires, self.once.engine().now()));
            }
            Err(Error::InDoubt) => {
                let verdict = MessageVerdict::Redeliver { after: PAUSE_MAX, because: Because::InDoubt };
                return done("in_doubt", 0, verdict);
            }
            Err(Error::Conflict { effect_id, .. }) => {
                return Handled { effect_id, ..done("conflict", 0, self.conflicting(message)) };
            }
            Err(error) => return done("unavailable", 0, store(error)),
        };
        let attempt = claim.attempt();
        // The last attempt ended without a word: it may be the message itself that kills its consumers. One further
        // back does not count: those since came to an end.
        let lapsed = claim.earlier().is_some_and(|earlier| earlier.attempt.saturating_add(1) == attempt);
        if attempt > self.attempts_max && lapsed {
            let letter = DeadMessage::held(
                claim,
                DeadMessageReason::Attempts,
                "the last attempt never came to an end".to_owned(),
                false,
            );
            return done("new", attempt, MessageVerdict::Dead(letter.into()));
        }
        let verdict = match claim.keep(handler(message, claim.clone())).await {
            Ok(effect) => seal(&claim, effect).await,
            Err(failure) => self.failed(claim, failure).await,
        };
        done("new", attempt, verdict)
    }

    async fn failed<E: Display>(&self, claim: Claim, failure: HandlerFailure<E>) -> MessageVerdict {
        let last = claim.attempt() >= self.attempts_max;
        let pause = pause(claim.attempt());
        match failure {
            HandlerFailure::Permanent(error) => MessageVerdict::Dead(
                DeadMessage::held(claim, DeadMessageReason::Permanent, error.to_string(), true).into(),
            ),
            HandlerFailure::Temporary { error, .. } if last => MessageVerdict::Dead(
                DeadMessage::held(claim, DeadMessageReason::Attempts, error.to_string(), true).into(),
            ),
            HandlerFailure::Unknown(error) if last => MessageVerdict::Dead(
                DeadMessage::held(claim, DeadMessageReason::Attempts, error.to_string(), false).into(),
            ),
            HandlerFailure::Temporary { error, after } => {
                // If even the release fails, the lease ends the claim.
                let _ = claim.release().await;
                let after = after.map_or(pause, |after| after.max(pause));
                MessageVerdict::Redeliver { after, because: Because::Temporary(error.to_string()) }
            }
            HandlerFailure::Away(error) => {
                let _ = claim.release().await;
                MessageVerdict::Redeliver { after: pause, because: Because::Away(error.to_string()) }
            }
            // The claim keeps its lease: the next copy waits for its end.
            HandlerFailure::Unknown(error) => {
                MessageVerdict::Redeliver { after: PAUSE_FIRST, because: Because::Unknown(error.to_string()) }
            }
        }
    }

    // The key belongs to the first body. The dead letter of this one has a key of its own, made from its offset.
    fn conflicting(&self, message: &Message) -> MessageVerdict {
        let grave = Message { dedupe_id: format!("dead:{}", message.offset), ..message.clone() };
        let why = "the same dedupe id came with another body".to_owned();
        MessageVerdict::Dead(DeadMessage::open(self.clone(), grave, DeadMessageReason::Conflict, why).into())
    }

    async fn claim(&self, message: &Message) -> Result<Claimed, Error> {
        self.once.enter(self.command(message)?, self.wait).await
    }

    fn command(&self, message: &Message) -> Result<fence::ClaimFence, Error> {
        let key = [
            ("topic", message.topic.clone()),
            ("partition", message.partition.to_string()),
            ("message_key", message.key.clone()),
            ("dedupe_id", message.dedupe_id.clone()),
        ];
        let place = format!("{}/{}/{}", message.topic, message.partition, message.offset);
        let mut claim = self.once.scope(SCOPE).key(key).source("queue", &place).command()?;
        claim.body = Some(match json::parse(&message.body) {
            Ok(node) => Body::json(&node, &claim.target.scope.mask),
            Err(_) => Body::opaque(&message.body),
        });
        Ok(claim)
    }
}

async fn seal(claim: &Claim, effect: Done) -> MessageVerdict {
    match claim.settle(effect, SEAL_FOR).await {
        Ok(Done { effect_id, .. }) => MessageVerdict::Acknowledge { effect_id, replayed: false },
        Err(error) => store(error),
    }
}

// Another consumer may be waiting for longer than a lease: the next look is soon, and is itself woken by the seal.
fn in_flight(lease_expires: Millis, now: Millis) -> MessageVerdict {
    let left = Duration::from_millis(lease_expires.since(now));
    MessageVerdict::Redeliver { after: left.clamp(PAUSE_FIRST, PAUSE_FIRST * 10), because: Because::InFlight }
}

fn store(error: Error) -> MessageVerdict {
    later(match error {
        Error::Engine(engine::Error::Stopped(why)) | Error::Unsealed { cause: engine::Error::Stopped(why), .. } => {
            Because::Stopped(why)
        }
        Error::FencedOff { resolved: Some(resolved) } => Because::Resolved(resolved.to_string()),
        Error::FencedOff { resolved: None } | Error::Conflict { .. } => Because::FencedOff,
        other => Because::Store(other.to_string()),
    })
}

fn later(because: Because) -> MessageVerdict {
    MessageVerdict::Redeliver { after: PAUSE_FIRST * 10, because }
}

fn refused(idempotency_key: String, verdict: MessageVerdict) -> Handled {
    Handled { idempotency_key, decision: "unavailable", effect_id: None, attempt: 0, verdict }
}

// Twice as long each time, and never for all at the same moment.
fn pause(attempt: u32) -> Duration {
    let whole = PAUSE_FIRST.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(PAUSE_MAX);
    whole / 2 + whole.mul_f64(fastrand::f64() / 2.0)
}
