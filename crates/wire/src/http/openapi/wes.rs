//! The part of the document about `/wes/v1`. Says what the routes do; a test holds its paths against the routes.

mod schemas;

pub(super) use schemas::schemas;

use super::Operation;
use crate::problem::Code;

const PLANNER: (&str, &str, &str) = ("planner_id", "query", "whose; for admins and viewers. `tenant` says the same");
const WAREHOUSE: (&str, &str, &str) = ("warehouse_id", "path", "1 to 128 characters");
const LANE: (&str, &str, &str) = ("lane", "path", "its name, or its lane_id");
const LETTER: (&str, &str, &str) = ("id", "path", "the id of the dead letter");
const LIMIT: (&str, &str, &str) = ("limit", "query", "1 to 1000; 100 where absent");

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/events",
        summary: "Publish one event, or {\"events\":[…]} of up to 1,000 in one commit, each once",
        request: Some("Events"),
        answers: &[
            (202, "Published", "In its lane; a batch is answered with results, and so if any of it is new"),
            (200, "Published", "Published before, at this position"),
        ],
        refusals: &[Code::Conflict, Code::Invalid, Code::UnknownOriginal, Code::NoTransport],
        parameters: &[],
    },
    Operation {
        method: "put",
        path: "/wes/v1/warehouses/{warehouse_id}/transport",
        summary: "Say how the events of a warehouse reach its executor",
        request: Some("Transport"),
        answers: &[(200, "TransportSet", "In force from now on")],
        refusals: &[Code::LaneNotDrained, Code::AddressRefused, Code::UnknownExecutor, Code::TransportUnsupported],
        parameters: &[WAREHOUSE],
    },
    Operation {
        method: "get",
        path: "/wes/v1/warehouses/{warehouse_id}/transport",
        summary: "How the events of a warehouse reach its executor, without the secrets",
        request: None,
        answers: &[(200, "TransportShown", "The transport in force")],
        refusals: &[Code::UnknownWarehouse, Code::StoreUnsupported],
        parameters: &[WAREHOUSE, PLANNER],
    },
    Operation {
        method: "get",
        path: "/wes/v1/dispatch/lanes",
        summary: "Where every lane stands",
        request: None,
        answers: &[(200, "Lanes", "A page; `after` takes its next")],
        refusals: &[Code::UnknownLane, Code::StoreUnsupported],
        parameters: &[
            PLANNER,
            ("state", "query", "idle, waiting, delivering, retrying, paused or blocked; a page may then be short"),
            LIMIT,
            ("after", "query", "the next of the page before"),
        ],
    },
    Operation {
        method: "get",
        path: "/wes/v1/dispatch/lanes/{lane}",
        summary: "Where one lane stands",
        request: None,
        answers: &[(200, "Lane", "The lane")],
        refusals: &[Code::UnknownLane, Code::StoreUnsupported],
        parameters: &[LANE, PLANNER],
    },
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/lanes/{lane}/skip",
        summary: "Send the head of a lane to the dead letters now",
        request: Some("Skip"),
        answers: &[(200, "LaneActed", "The lane goes on behind it")],
        refusals: &[Code::UnknownLane, Code::NotHead],
        parameters: &[LANE, PLANNER],
    },
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/lanes/{lane}/pause",
        summary: "Send nothing of a lane any more; nothing is lost, and no horizon passes",
        request: Some("Why"),
        answers: &[(200, "LaneActed", "The lane stands")],
        refusals: &[Code::UnknownLane],
        parameters: &[LANE, PLANNER],
    },
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/lanes/{lane}/resume",
        summary: "Let a paused lane go on",
        request: None,
        answers: &[(200, "LaneActed", "The lane goes on")],
        refusals: &[Code::UnknownLane, Code::StoreUnsupported],
        parameters: &[LANE, PLANNER],
    },
    Operation {
        method: "get",
        path: "/wes/v1/dispatch/dlq",
        summary: "Dead letters: events that left their lane undelivered",
        request: None,
        answers: &[(200, "DeadLetters", "A page; `after` takes its next")],
        refusals: &[Code::UnknownLetter, Code::StoreUnsupported],
        parameters: &[
            PLANNER,
            ("state", "query", "waiting (where absent), redriven, discarded or all"),
            ("warehouse_id", "query", "only of this warehouse"),
            ("reason", "query", "horizon, too_large or skipped"),
            ("kind", "query", "only events of this kind"),
            ("correlation_id", "query", "only this event"),
            LIMIT,
            ("after", "query", "the next of the page before"),
        ],
    },
    Operation {
        method: "get",
        path: "/wes/v1/dispatch/dlq/{id}",
        summary: "One dead letter with its event",
        request: None,
        answers: &[(200, "DeadLetter", "The letter; `event` holds the bytes that were published")],
        refusals: &[Code::UnknownLetter, Code::StoreUnsupported],
        parameters: &[LETTER, PLANNER],
    },
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/dlq/{id}/redrive",
        summary: "Send a dead letter again, marked as out of order",
        request: Some("Redrive"),
        answers: &[(200, "DeadLetter", "Back in a lane; decided.seq is its new position")],
        refusals: &[
            Code::UnknownLetter,
            Code::LetterCancelled,
            Code::PastRetention,
            Code::AlreadyDecided,
            Code::NoTransport,
        ],
        parameters: &[LETTER, PLANNER],
    },
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/dlq/{id}/discard",
        summary: "Give a dead letter up",
        request: Some("Why"),
        answers: &[(200, "DeadLetter", "Recorded with who, when and why")],
        refusals: &[Code::UnknownLetter, Code::AlreadyDecided],
        parameters: &[LETTER, PLANNER],
    },
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/dlq/redrive",
        summary: "Send many dead letters again, at a bounded rate; or say what would happen",
        request: Some("RedriveMany"),
        answers: &[(200, "Redriven", "What became of each; `after` takes `next` until it is empty")],
        refusals: &[Code::UnknownLetter],
        parameters: &[PLANNER],
    },
    Operation {
        method: "get",
        path: "/wes/v1/dispatch/pending",
        summary: "The next events for an executor that polls; changes nothing",
        request: None,
        answers: &[(200, "Pending", "Events in order, as published; next_cursor is empty where there are none")],
        refusals: &[Code::UnknownCursor, Code::CursorAhead, Code::StoreUnsupported],
        parameters: &[
            ("since", "query", "a next_cursor; absent or before the acknowledged position means that position"),
            LIMIT,
            ("wait", "query", "0 to 30 seconds to wait for something new"),
            ("planner_id", "query", "which planner's events, where the executor serves several"),
        ],
    },
    Operation {
        method: "post",
        path: "/wes/v1/dispatch/ack",
        summary: "Acknowledge everything up to a cursor; never moves back",
        request: Some("Ack"),
        answers: &[(200, "Acked", "The acknowledged position")],
        refusals: &[Code::UnknownCursor, Code::CursorAhead],
        parameters: &[],
    },
];
