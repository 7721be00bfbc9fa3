//! The routes of `/wms-ingest/v1`.

use fencepost::policy::identity::Role;
use http::Method;

use super::{REQUEST_BYTES_MAX, items, quarantine, read};
use crate::{
    http::{
        openapi::parameter::{
            AFTER, COLLECTION, CORRELATION_ID, DRY_RUN, INGEST_MODE, LIMIT, OF_TENANT, QUARANTINE_COLLECTION,
            QUARANTINE_ID, QUARANTINE_REASON, QUARANTINE_STATUS, SINCE, SOURCE_ID, WAITING_FOR,
        },
        route::{Access, BodyLimit, Class, Content, Handler, RequestBody, Route, buffered},
    },
    problem::Code,
};

/// A partner sends its own items.
const SEND: Access = Access::Roles(&[Role::Partner]);
/// A partner reads its own; operators read those of the partner that they name.
const LOOK: Access = Access::Roles(&[Role::Partner, Role::Admin, Role::Viewer]);

const fn submit(path: &'static str, operation_id: &'static str, summary: &'static str, handler: Handler) -> Route {
    Route {
        method: Method::POST,
        path,
        handler,
        access: SEND,
        class: Class::Normal,
        body_limit: BodyLimit::Bytes(REQUEST_BYTES_MAX),
        operation_id,
        summary,
        parameters: &[&COLLECTION, &INGEST_MODE, &DRY_RUN, &CORRELATION_ID],
        request: RequestBody::Json("Items"),
        answers: &[(200, Content::Json("ItemResults"), "Each item with its verdict, in the order of the request")],
        errors: &[
            Code::MissingHeader,
            Code::UnknownCollection,
            Code::CorrelationIdReused,
            Code::ModeUnsupported,
            Code::StoreUnsupported,
        ],
    }
}

const fn look(path: &'static str, operation_id: &'static str, summary: &'static str, handler: Handler) -> Route {
    Route {
        method: Method::GET,
        path,
        handler,
        access: LOOK,
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id,
        summary,
        parameters: &[&COLLECTION, &SOURCE_ID, &OF_TENANT],
        request: RequestBody::None,
        answers: &[(200, Content::Json("Item"), "The item in its present version")],
        errors: &[Code::UnknownCollection, Code::UnknownItem, Code::StoreUnsupported],
    }
}

const fn history(path: &'static str, operation_id: &'static str, summary: &'static str, handler: Handler) -> Route {
    Route {
        parameters: &[&COLLECTION, &SOURCE_ID, &OF_TENANT, &LIMIT, &AFTER, &SINCE],
        answers: &[(200, Content::Json("ItemHistory"), "A page")],
        errors: &[Code::UnknownCollection, Code::UnknownItem, Code::UnknownCursor, Code::StoreUnsupported],
        ..look(path, operation_id, summary, handler)
    }
}

const fn retire(
    method: Method,
    path: &'static str,
    operation_id: &'static str,
    summary: &'static str,
    handler: Handler,
) -> Route {
    Route {
        method,
        access: SEND,
        parameters: &[&COLLECTION, &SOURCE_ID, &CORRELATION_ID],
        answers: &[(200, Content::Json("ItemRetired"), "It does not count any more")],
        errors: &[
            Code::MissingHeader,
            Code::UnknownCollection,
            Code::UnknownItem,
            Code::CorrelationIdReused,
            Code::StoreUnsupported,
        ],
        ..look(path, operation_id, summary, handler)
    }
}

pub(in crate::http) const ROUTES: &[Route] = &[
    submit(
        "/wms-ingest/v1/master/{collection}",
        "submitMaster",
        "Send master data: each item is accepted, known already, set aside or refused",
        buffered!(items::master),
    ),
    submit(
        "/wms-ingest/v1/documents/{collection}",
        "submitDocuments",
        "Send documents: each is accepted, known already, set aside or refused",
        buffered!(items::documents),
    ),
    submit(
        "/wms-ingest/v1/inventory/{collection}",
        "submitInventory",
        "Send inventory records: each is accepted, known already, set aside or refused",
        buffered!(items::inventory),
    ),
    look("/wms-ingest/v1/master/{collection}/{source_id}", "getMaster", "An item of master data", buffered!(read::master)),
    retire(
        Method::DELETE,
        "/wms-ingest/v1/master/{collection}/{source_id}",
        "deleteMaster",
        "Make an item of master data inactive; its versions are remembered",
        buffered!(items::delete),
    ),
    history(
        "/wms-ingest/v1/master/{collection}/{source_id}/history",
        "getMasterHistory",
        "Every accepted version of an item of master data, the newest first",
        buffered!(read::master_history),
    ),
    look("/wms-ingest/v1/documents/{collection}/{source_id}", "getDocument", "A document", buffered!(read::document)),
    retire(
        Method::POST,
        "/wms-ingest/v1/documents/{collection}/{source_id}/cancel",
        "cancelDocument",
        "Cancel a document",
        buffered!(items::cancel),
    ),
    history(
        "/wms-ingest/v1/documents/{collection}/{source_id}/history",
        "getDocumentHistory",
        "Every accepted version of a document, the newest first",
        buffered!(read::document_history),
    ),
    look(
        "/wms-ingest/v1/inventory/{collection}/{source_id}",
        "getInventory",
        "An inventory record",
        buffered!(read::inventory),
    ),
    history(
        "/wms-ingest/v1/inventory/{collection}/{source_id}/history",
        "getInventoryHistory",
        "Every accepted version of an inventory record, the newest first",
        buffered!(read::inventory_history),
    ),
    Route {
        parameters: &[
            &QUARANTINE_STATUS,
            &QUARANTINE_COLLECTION,
            &WAITING_FOR,
            &QUARANTINE_REASON,
            &OF_TENANT,
            &LIMIT,
            &AFTER,
            &SINCE,
        ],
        answers: &[(200, Content::Json("Quarantines"), "A page")],
        errors: &[Code::UnknownCursor, Code::StoreUnsupported],
        ..look("/wms-ingest/v1/quarantine", "listQuarantine", "Items that wait for others", buffered!(quarantine::list))
    },
    Route {
        method: Method::POST,
        access: SEND,
        parameters: &[&QUARANTINE_ID, &CORRELATION_ID],
        answers: &[(200, Content::Json("ItemReleased"), "What became of the item")],
        errors: &[
            Code::MissingHeader,
            Code::UnknownQuarantine,
            Code::UnknownCollection,
            Code::CorrelationIdReused,
            Code::StoreUnsupported,
        ],
        ..look(
            "/wms-ingest/v1/quarantine/{quarantine_id}/release",
            "releaseQuarantine",
            "Look at an item in quarantine again",
            buffered!(quarantine::release),
        )
    },
    Route {
        parameters: &[],
        answers: &[(200, Content::Json("Capabilities"), "Collections with their schemas, and limits")],
        errors: &[Code::StoreUnsupported],
        ..look(
            "/wms-ingest/v1/capabilities",
            "getCapabilities",
            "What this server takes: collections, their schemas and references, and limits",
            buffered!(read::capabilities),
        )
    },
];
