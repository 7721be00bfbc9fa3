//! A message that is not to be tried any more, on its way to the dead letters: sent under a claim and sealed, so that a
//! redelivery after a crash does not send it twice. Never sends anything itself. Made by `queue` alone.

use std::fmt::Display;

use super::{Because, Claim, Claimed, Consumer, Done, Message, MessageVerdict, later, seal, store};

/// Why a message is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadMessageReason {
    /// The handler refused it for good.
    Permanent,
    /// It was tried as often as it may be.
    Attempts,
    /// Its dedupe id is that of an earlier message with another body.
    Conflict,
}

impl DeadMessageReason {
    /// Its name in logs and headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Attempts => "attempts",
            Self::Conflict => "conflict",
        }
    }
}

/// A dead message, and the right to send it away.
pub struct DeadMessage {
    /// Why it is dead.
    pub reason: DeadMessageReason,
    /// The end of the last attempt, in words.
    pub detail: String,
    /// How often it was tried; 0 for a conflict.
    pub attempts: u32,
    claim: DeadMessageClaim,
}

enum DeadMessageClaim {
    /// The message's own claim. Where nothing happened under it, it may be released.
    Held { claim: Claim, nothing_happened: bool },
    /// A key of its own, not yet claimed.
    Open { consumer: Consumer, message: Message },
}

impl DeadMessage {
    pub(super) fn held(claim: Claim, reason: DeadMessageReason, detail: String, nothing_happened: bool) -> Self {
        let attempts = claim.attempt();
        Self { reason, detail, attempts, claim: DeadMessageClaim::Held { claim, nothing_happened } }
    }

    pub(super) fn open(consumer: Consumer, message: Message, reason: DeadMessageReason, detail: String) -> Self {
        Self { reason, detail, attempts: 0, claim: DeadMessageClaim::Open { consumer, message } }
    }

    /// Sends it where dead messages go, and seals that. `send` says where it is now, and should try for a while: where it
    /// fails, the message is to be handed in again. Only a [`MessageVerdict::Acknowledge`] lets the queue forget it.
    ///
    /// A crash between the sending and the seal may send it a second time.
    pub async fn bury<E: Display>(self, send: impl Future<Output = Result<String, E>>) -> MessageVerdict {
        let (claim, nothing_happened) = match self.claim {
            DeadMessageClaim::Held { claim, nothing_happened } => (claim, nothing_happened),
            DeadMessageClaim::Open { consumer, message } => match consumer.claim(&message).await {
                Ok(Claimed::New(claim)) => (claim, true),
                Ok(Claimed::Duplicate(outcome)) => {
                    return MessageVerdict::Acknowledge { effect_id: outcome.effect_id, replayed: true };
                }
                Err(error) => return store(error),
            },
        };
        match claim.keep(send).await {
            Ok(place) => seal(&claim, Done::new(format!("dead:{place}"), format!("{:?}", self.reason.name()))).await,
            Err(error) => {
                if nothing_happened {
                    let _ = claim.release().await;
                }
                later(Because::Unburied(error.to_string()))
            }
        }
    }
}
