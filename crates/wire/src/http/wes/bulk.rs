//! `POST /wes/v1/dispatch/dlq/redrive`: many dead letters at once, no faster than asked for, and from where it stopped.
//! A preview changes nothing. A repetition skips letters that were sent already: they wait no longer.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::response::Response;
use fencepost_kernel::{
    LaneId, Tenant,
    dispatch::LetterVerdict,
    json::{JsonNode, Value},
    lane::DeadLetter,
};
use tokio::time::MissedTickBehavior;

use super::{
    ACTORS, LIMIT_DEFAULT, LIMIT_MAX, Query, VisibleLanes, array, audit, dispatch,
    letters::{self, Filter},
    malformed, only,
};
use crate::{
    deliveries::letter_id,
    http::{
        call::Call,
        query::unknown_cursor,
        reply::{Answer, Object},
        request,
    },
    problem::{Code, Problem},
};

const RATE_PER_SECOND: usize = 50;
const RATE_PER_SECOND_MAX: usize = 1_000;
/// One request takes no longer: the rest is behind `next_cursor`.
const LASTS_MAX: Duration = Duration::from_secs(25);

struct Ask {
    which: Which,
    preview: bool,
    limit: usize,
    rate_per_second: usize,
    after: Option<String>,
    force: Option<String>,
}

enum Which {
    These(Vec<String>),
    Like(Filter),
}

/// A letter that is meant.
struct Meant {
    lane: LaneId,
    seq: u64,
    letter: Arc<DeadLetter>,
}

/// The results for the selected letters.
#[derive(Default)]
struct Tally {
    sent: usize,
    replayed: usize,
    refused: Vec<(String, Problem)>,
}

/// `POST /wes/v1/dispatch/dlq/redrive`
pub(super) async fn redrive_many(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let visible = VisibleLanes::of(call, query.planner()?, ACTORS)?;
    dispatch(call)?;
    let ask = ask(&call.json()?)?;
    let mut tally = Tally::default();
    let (meant, mut next) = gather(call, &visible, &ask, &mut tally).await?;
    if ask.preview {
        preview(call, &meant, &ask, &mut tally).await?;
    } else if let Some(stopped) = redrive(call, &meant, &ask, &mut tally).await? {
        next = Some(stopped);
    }
    let refused = tally.refused.iter().map(|(id, problem)| Object::new().text("id", id).problem(problem).end());
    let body = Object::new().value("preview", ask.preview);
    let body = if ask.preview {
        body.value("would_redrive", tally.sent)
    } else {
        body.value("redriven", tally.sent).value("replayed", tally.replayed)
    };
    let body = body.raw("refused", &array(refused)).text("next_cursor", &next.unwrap_or_default());
    Ok(Answer::ok(body.end()).response())
}

fn ask(node: &JsonNode<'_>) -> Result<Ask, Problem> {
    let node = request::object(node)?;
    // A misspelt filter must not mean everything.
    only(node, "a redrive", &["filter", "ids", "preview", "limit", "rate_per_second", "after", "force"])?;
    let which = match (node.get("filter"), node.get("ids").map(|ids| &ids.value)) {
        (Some(filter), None) => Which::Like(filter_of(filter)?),
        (None, Some(Value::Array(ids))) if ids.len() <= LIMIT_MAX => {
            let ids = ids.iter().map(|id| id.as_str().map(str::to_owned)).collect::<Option<_>>();
            Which::These(ids.ok_or_else(|| malformed("`ids` must be strings"))?)
        }
        (None, Some(_)) => return Err(malformed(format!("`ids` must be an array of up to {LIMIT_MAX} strings"))),
        _ => return Err(malformed("name the letters by `ids` or by `filter`; `{}` means all that wait")),
    };
    let preview = match node.get("preview").map(|preview| &preview.value) {
        None => false,
        Some(Value::Bool(preview)) => *preview,
        Some(_) => return Err(malformed("`preview` must be true or false")),
    };
    let number = |name: &str, max: usize, default: usize| match node.get(name).map(|number| number.as_u64()) {
        None => Ok(default),
        Some(Some(number)) if (1..=max as u64).contains(&number) => Ok(number as usize),
        Some(_) => Err(malformed(format!("`{name}` must be from 1 to {max}"))),
    };
    let after = node.get("after").filter(|after| after.as_str() != Some(""));
    let after = after.map(|_| request::text(node, "after")).transpose()?;
    Ok(Ask {
        which,
        preview,
        limit: number("limit", LIMIT_MAX, LIMIT_DEFAULT)?,
        rate_per_second: number("rate_per_second", RATE_PER_SECOND_MAX, RATE_PER_SECOND)?,
        after: after.map(str::to_owned),
        force: letters::force(node)?,
    })
}

fn filter_of(node: &JsonNode<'_>) -> Result<Filter, Problem> {
    let node = request::object_as("`filter`", node)?;
    // Only a waiting letter can be sent again.
    let names: Vec<&str> = Filter::NAMES.into_iter().filter(|name| *name != "state").collect();
    only(node, "`filter`", &names)?;
    Filter::read(|name| node.get(name).map(|_| request::text(node, name)).transpose())
}

// The letters that are meant, and where to go on after them.
async fn gather(
    call: &Call,
    visible: &VisibleLanes<'_>,
    ask: &Ask,
    tally: &mut Tally,
) -> Result<(Vec<Meant>, Option<String>), Problem> {
    let ids = match &ask.which {
        Which::Like(filter) => {
            let after =
                ask.after.as_deref().map(|after| letters::place(after).ok_or_else(unknown_cursor)).transpose()?;
            let (found, next) = letters::page(dispatch(call)?, visible, filter, after, ask.limit).await?;
            let meant = found.into_iter().map(|row| Meant { lane: row.lane, seq: row.seq, letter: row.letter });
            return Ok((meant.collect(), next.map(|(lane, seq)| letter_id(lane, seq))));
        }
        Which::These(ids) => ids,
    };
    let done = ask.after.as_ref().and_then(|after| ids.iter().position(|id| id == after)).map_or(0, |at| at + 1);
    let now = &ids[done..ids.len().min(done + ask.limit)];
    let mut meant = Vec::with_capacity(now.len());
    for id in now {
        match letters::find(call, visible, id).await {
            Ok((lane, seq, letter)) => meant.push(Meant { lane, seq, letter }),
            // A store that does not answer is no property of the letter.
            Err(problem) if problem.code() == Code::StoreUnavailable => return Err(problem),
            Err(problem) => tally.refused.push((id.clone(), problem)),
        }
    }
    let more = done + now.len() < ids.len();
    Ok((meant, now.last().filter(|_| more).cloned()))
}

// Sends them again, in order. Where the time is over, or the store goes away: the last one that was asked about.
async fn redrive(call: &Call, meant: &[Meant], ask: &Ask, tally: &mut Tally) -> Result<Option<String>, Problem> {
    let dispatch = dispatch(call)?;
    let begun = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_secs(1) / ask.rate_per_second as u32);
    // One that took long is not made up for by a burst.
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    for (index, one) in meant.iter().enumerate() {
        pace.tick().await;
        let id = letter_id(one.lane, one.seq);
        let verdict = LetterVerdict::Redrive { force: ask.force.clone() };
        let reply = match dispatch.decide_letter(one.lane, one.seq, verdict, &call.caller.id).await {
            Ok(reply) => reply,
            // Earlier letters are sent and must be told: the client goes on behind the last of them.
            Err(_) if last.is_some() => return Ok(last),
            Err(error) => return Err(error.into()),
        };
        audit(call, "redrive", reply.decision(), &one.letter.tenant, &[("dead_letter", &id)]);
        match letters::decided(&id, &reply) {
            Ok((_, false)) => tally.sent += 1,
            Ok((_, true)) => tally.replayed += 1,
            Err(problem) => tally.refused.push((id.clone(), problem)),
        }
        if index + 1 < meant.len() && begun.elapsed() >= LASTS_MAX {
            return Ok(Some(id));
        }
        last = Some(id);
    }
    Ok(None)
}

// The expected results. Only the redrive itself decides: this is how it stands now.
async fn preview(call: &Call, meant: &[Meant], ask: &Ask, tally: &mut Tally) -> Result<(), Problem> {
    let dispatch = dispatch(call)?;
    let now = call.app.fencepost.engine().now();
    let mut retention_ms: HashMap<(Tenant, String), Option<u64>> = HashMap::new();
    for Meant { lane, seq, letter } in meant {
        let warehouse = (letter.tenant.clone(), letter.entry.subject.clone());
        let retain_ms = match retention_ms.get(&warehouse) {
            Some(known) => *known,
            None => {
                let transport = dispatch.transport(&warehouse.0, &warehouse.1).await?;
                *retention_ms.entry(warehouse).or_insert(transport.map(|known| known.receiver_retain_ms))
            }
        };
        let problem = match (letter.cancelled_by.as_deref(), retain_ms) {
            _ if letter.fate.name() != "waiting" => letters::already(letter),
            (Some(by), _) => letters::cancelled(by),
            (None, None) => letters::no_transport(),
            (None, Some(ms)) if letter.forgotten(ms, now) && ask.force.is_none() => letters::past_retention(ms),
            (None, Some(_)) => {
                tally.sent += 1;
                continue;
            }
        };
        tally.refused.push((letter_id(*lane, *seq), problem));
    }
    Ok(())
}
