//! The routes of `/wms-ingest/v1`.

use fencepost::policy::identity::Role;
use http::Method;

use super::{items, jobs, quarantine, read, versions};
use crate::{
    http::{
        openapi::parameter::{
            AFTER, COLLECTION, CORRELATION_ID, DRY_RUN, INGEST_MODE, JOB_ID, JOB_STATUS, LIMIT, LINE_STATUS, OF_TENANT,
            QUARANTINE_COLLECTION, QUARANTINE_CORRELATION_ID, QUARANTINE_ID, QUARANTINE_REASON, QUARANTINE_RESOLUTION,
            QUARANTINE_SOURCE_ID, QUARANTINE_STATUS, SINCE, SOURCE_ID, WAITING_FOR, WITH_ITEM,
        },
        route::{Access, BodyLimit, Class, Content, RequestBody, Route, buffered, streaming_where},
    },
    problem::Code,
};

/// A partner sends its own items.
const SEND: Access = Access::Roles(&[Role::Partner]);
/// A partner reads its own; operators read those of the partner that they name.
const LOOK: Access = Access::Roles(&[Role::Partner, Role::Admin, Role::Viewer]);

/// A route; the rows below say what differs between them.
macro_rules! route {
    ($method:ident $path:literal, $operation_id:literal, $summary:literal, $handler:path, $access:expr, $request:expr,
     $parameters:expr, $answer:expr, $errors:expr) => {
        Route {
            method: Method::$method,
            path: concat!("/wms-ingest/v1/", $path),
            handler: buffered!($handler),
            access: $access,
            class: Class::Normal,
            body_limit: BodyLimit::Policy,
            operation_id: $operation_id,
            summary: $summary,
            parameters: $parameters,
            request: $request,
            answers: &[$answer],
            errors: $errors,
        }
    };
}

macro_rules! submit {
    ($path:literal, $operation_id:literal, $summary:literal, $whole:path, $upload:path) => {
        Route {
            handler: streaming_where!(jobs::asks_for_job, $upload, $whole),
            class: Class::Streaming,
            body_limit: BodyLimit::PolicyButUploads(jobs::asks_for_job),
            answers: &[
                (200, Content::Json("ItemResults"), "Each item with its verdict, in the order of the request"),
                (202, Content::Json("JobQueued"), "A job, for mode=bulk and for more items than one request may have"),
            ],
            ..route!(
                POST $path, $operation_id, $summary, $whole, SEND,
                RequestBody::Json("Items"),
                &[&COLLECTION, &INGEST_MODE, &DRY_RUN, &CORRELATION_ID],
                (200, Content::Json("ItemResults"), ""),
                &[Code::MissingHeader, Code::UnknownCollection, Code::CorrelationIdReused, Code::ModeUnsupported]
            )
        }
    };
}

macro_rules! look {
    ($path:literal, $operation_id:literal, $summary:literal, $handler:path) => {
        route!(
            GET $path, $operation_id, $summary, $handler, LOOK,
            RequestBody::None,
            &[&COLLECTION, &SOURCE_ID, &OF_TENANT],
            (200, Content::Json("Item"), "The item in its present version"),
            &[Code::UnknownCollection, Code::UnknownItem, Code::StoreUnsupported]
        )
    };
}

macro_rules! history {
    ($path:literal, $operation_id:literal, $summary:literal, $handler:path) => {
        route!(
            GET $path, $operation_id, $summary, $handler, LOOK,
            RequestBody::None,
            &[&COLLECTION, &SOURCE_ID, &OF_TENANT, &LIMIT, &AFTER, &SINCE],
            (200, Content::Json("ItemHistory"), "A page"),
            &[Code::UnknownCollection, Code::UnknownItem, Code::UnknownCursor, Code::StoreUnsupported]
        )
    };
}

macro_rules! retire {
    ($method:ident $path:literal, $operation_id:literal, $summary:literal, $handler:path) => {
        route!(
            $method $path, $operation_id, $summary, $handler, SEND,
            RequestBody::None,
            &[&COLLECTION, &SOURCE_ID, &DRY_RUN, &CORRELATION_ID],
            (200, Content::Json("ItemRetired"), "It does not count any more"),
            &[
                Code::MissingHeader,
                Code::UnknownCollection,
                Code::UnknownItem,
                Code::CorrelationIdReused,
                Code::StoreUnsupported,
            ]
        )
    };
}

pub(in crate::http) const ROUTES: &[Route] = &[
    submit!(
        "master/{collection}",
        "submitMaster",
        "Send master data: each item is accepted, known already, put in quarantine or refused",
        items::master,
        jobs::master
    ),
    submit!(
        "documents/{collection}",
        "submitDocuments",
        "Send documents: each is accepted, known already, put in quarantine or refused",
        items::documents,
        jobs::documents
    ),
    submit!(
        "inventory/{collection}",
        "submitInventory",
        "Send inventory records: each is accepted, known already, put in quarantine or refused",
        items::inventory,
        jobs::inventory
    ),
    look!("master/{collection}/{source_id}", "getMaster", "An item of master data", read::master),
    retire!(
        DELETE "master/{collection}/{source_id}",
        "deleteMaster",
        "Make an item of master data inactive; its versions are remembered",
        items::delete
    ),
    history!(
        "master/{collection}/{source_id}/history",
        "getMasterHistory",
        "Every accepted version of an item of master data, the newest first",
        read::master_history
    ),
    look!("documents/{collection}/{source_id}", "getDocument", "A document", read::document),
    retire!(
        POST "documents/{collection}/{source_id}/cancel",
        "cancelDocument",
        "Cancel a document",
        items::cancel
    ),
    history!(
        "documents/{collection}/{source_id}/history",
        "getDocumentHistory",
        "Every accepted version of a document, the newest first",
        read::document_history
    ),
    look!("inventory/{collection}/{source_id}", "getInventory", "An inventory record", read::inventory),
    history!(
        "inventory/{collection}/{source_id}/history",
        "getInventoryHistory",
        "Every accepted version of an inventory record, the newest first",
        read::inventory_history
    ),
    route!(
        GET "jobs", "listJobs", "Jobs, the newest first", jobs::list, LOOK,
        RequestBody::None,
        &[&JOB_STATUS, &OF_TENANT, &LIMIT, &AFTER, &SINCE],
        (200, Content::Json("Jobs"), "A page"),
        &[Code::UnknownCursor, Code::StoreUnsupported]
    ),
    route!(
        GET "jobs/{job_id}", "getJob", "A job with its progress", jobs::read, LOOK,
        RequestBody::None,
        &[&JOB_ID, &OF_TENANT],
        (200, Content::Json("Job"), "The job as it stands"),
        &[Code::UnknownJob, Code::StoreUnsupported]
    ),
    route!(
        GET "jobs/{job_id}/results", "getJobResults",
        "Each item of a job with its verdict, one a line; the header Fencepost-Next-Cursor says where the next page begins",
        jobs::results, LOOK,
        RequestBody::None,
        &[&JOB_ID, &LINE_STATUS, &WITH_ITEM, &OF_TENANT, &LIMIT, &AFTER, &SINCE],
        (200, Content::Lines("JobResult"), "A line of JSON for each item"),
        &[Code::UnknownJob, Code::UnknownCursor, Code::StoreUnsupported]
    ),
    route!(
        POST "jobs/{job_id}/cancel", "cancelJob", "End a job before its last item; what is decided stays", jobs::cancel,
        SEND,
        RequestBody::None,
        &[&JOB_ID],
        (200, Content::Json("Job"), "The job as it is now"),
        &[Code::UnknownJob, Code::JobEnded, Code::StoreUnsupported]
    ),
    route!(
        GET "quarantine", "listQuarantine", "Items that wait for others", quarantine::list, LOOK,
        RequestBody::None,
        &[
            &QUARANTINE_STATUS,
            &QUARANTINE_RESOLUTION,
            &QUARANTINE_COLLECTION,
            &QUARANTINE_SOURCE_ID,
            &QUARANTINE_CORRELATION_ID,
            &WAITING_FOR,
            &QUARANTINE_REASON,
            &OF_TENANT,
            &LIMIT,
            &AFTER,
            &SINCE,
        ],
        (200, Content::Json("Quarantines"), "A page"),
        &[Code::UnknownCollection, Code::UnknownCursor, Code::StoreUnsupported]
    ),
    route!(
        POST "quarantine/{quarantine_id}/release", "releaseQuarantine", "Look at an item in quarantine again",
        quarantine::release, SEND,
        RequestBody::None,
        &[&QUARANTINE_ID, &DRY_RUN, &CORRELATION_ID],
        (200, Content::Json("ItemReleased"), "What became of the item"),
        &[
            Code::MissingHeader,
            Code::UnknownQuarantine,
            Code::UnknownCollection,
            Code::CorrelationIdReused,
            Code::StoreUnsupported,
        ]
    ),
    route!(
        GET "capabilities", "getCapabilities",
        "What this server takes: collections, their schemas and references, and limits",
        read::capabilities, LOOK,
        RequestBody::None,
        &[],
        (200, Content::Json("Capabilities"), "Collections with their schemas, and limits"),
        &[Code::StoreUnsupported]
    ),
];

pub(in crate::http) const OPERATORS_ROUTES: &[Route] = &[Route {
    method: Method::POST,
    path: "/admin/items/forget-version",
    handler: buffered!(versions::forget),
    access: Access::Roles(&[Role::Admin]),
    class: Class::Normal,
    body_limit: BodyLimit::Policy,
    operation_id: "forgetItemVersion",
    summary: "Let the next version of an item be accepted, where one was sent too high by mistake",
    parameters: &[],
    request: RequestBody::Json("ForgetItemVersion"),
    answers: &[(
        200,
        Content::Json("ItemVersionForgotten"),
        "Recorded with who, when and why; the version stays in the history",
    )],
    errors: &[Code::UnknownCollection, Code::UnknownItem, Code::StoreUnsupported],
}];
