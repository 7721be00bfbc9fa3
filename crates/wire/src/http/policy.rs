//! `/admin/policy`: which policy is in force, and reading its file again without a restart.
//! Never puts a part of a policy into force: all of it, or none. A request under way ends under the one it began with.
//! Called as a route, and by `serve` on SIGHUP.

use std::sync::{Mutex, PoisonError};

use axum::response::Response;
use fencepost::policy::{
    Finding, Policy, Severity,
    changes::Changes,
    config::Config,
    finding,
    identity::{Role, Sha},
};
use fencepost_kernel::{Millis, audit::Subject};
use http::Method;
use serde_json::{Value, json};

use super::{
    App,
    call::Call,
    openapi::parameter,
    reply::Answer,
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, buffered},
};
use crate::{
    log::Level,
    problem::{Code, Problem},
    time::rfc3339,
};

/// Where the policy in force came from, and since when it is.
pub struct PolicyOrigin {
    config: Config,
    // Held during a reload: of two at once, the second compares with the policy that the first has set.
    since: Mutex<Millis>,
}

impl PolicyOrigin {
    /// The configuration that a server starts with.
    pub fn new(config: Config, since: Millis) -> Self {
        Self { config, since: since.into() }
    }

    fn file(&self) -> Option<String> {
        self.config.file.as_ref().map(|file| file.display().to_string())
    }
}

/// Whether a policy that was read comes into force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reload {
    /// It does, where nothing speaks against it.
    Apply,
    /// It does not: only its changes are reported.
    DryRun,
}

/// Reads the configuration again. Changes are logged and returned; a refusal is logged and changes nothing.
pub fn reload(app: &App, by: &str, how: Reload) -> Result<Value, Problem> {
    let mut since = app.origin.since.lock().unwrap_or_else(PoisonError::into_inner);
    let now = app.fencepost.engine().now();
    let Some(file) = app.origin.file() else {
        let why = "the server was started without --config: there is no file to read again";
        app.log.line(Level::Error, now.0, "policy not reloaded; the old one stays").text("by", by).text("why", why);
        return Err(Problem::new(Code::NoPolicyFile, why));
    };
    match attempt(app, &file, how) {
        Ok((changes, policy)) => {
            let msg = match how {
                Reload::DryRun => "policy compared; nothing is changed",
                Reload::Apply if changes.is_empty() => "policy read again; nothing is different",
                Reload::Apply => "policy reloaded",
            };
            if how == Reload::Apply && policy.came {
                *since = now;
            }
            let sha256 = policy.sha256.map(|sha| sha.hex()).unwrap_or_default();
            let line = app.log.line(Level::Info, now.0, msg).text("by", by).text("file", &file);
            let line = line.text("sha256", &sha256);
            drop(changes.parts().iter().fold(line, |line, (name, said)| line.text(name, said)));
            let mut said = changes.json();
            said["dry_run"] = (how == Reload::DryRun).into();
            said["sha256"] = sha256.into();
            said["findings"] = finding::rows(&policy.findings);
            Ok(said)
        }
        Err(findings) => {
            let why = finding::human(&findings);
            app.log
                .line(Level::Error, now.0, "policy not reloaded; the old one stays")
                .text("by", by)
                .text("why", why.trim_end());
            let detail = "the policy in force stays as it was; `findings` says why";
            Err(Problem::new(Code::PolicyRefused, detail).with("findings", &finding::rows(&findings).to_string()))
        }
    }
}

/// Facts about a policy that was read, for its answer.
struct Known {
    sha256: Option<Sha>,
    findings: Vec<Finding>,
    came: bool,
}

fn attempt(app: &App, file: &str, how: Reload) -> Result<(Changes, Known), Vec<Finding>> {
    let unfit = |message: String| {
        let (severity, fix) = (Severity::Error, Some("use another store, or ask for less".to_owned()));
        vec![Finding { severity, rule: "store-unfit", file: file.to_owned(), line: 0, col: 0, message, fix }]
    };
    let old = app.policy();
    let new: Policy = app.origin.config.read()?.fit(&app.fencepost.engine().promises()).map_err(unfit)?;
    let changes = Changes::between(&old, &new);
    let refused = changes.refused(file);
    if !refused.is_empty() {
        return Err(refused);
    }
    let directory = app.directory.prepare(&new)?;
    // An unchanged policy keeps its pointer, and so everything that was derived from it.
    let came = new.sha256 != old.sha256 || !changes.is_empty();
    let known = Known { sha256: new.sha256, findings: new.findings.clone(), came };
    if how == Reload::Apply && came {
        app.fencepost.set_policy(new).map_err(unfit)?;
        if let Some(directory) = directory {
            app.directory.adopt(directory);
        }
    }
    Ok((changes, known))
}

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/admin/policy",
        handler: buffered!(show),
        access: Access::Roles(&[Role::Admin, Role::Viewer]),
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "getPolicy",
        summary: "Which policy is in force, and what its check found",
        parameters: &[],
        request: RequestBody::None,
        answers: &[(200, Content::Json("Policy"), "The file, its hash, its scopes, its routes and its findings")],
        errors: &[],
    },
    Route {
        method: Method::POST,
        path: "/admin/policy",
        handler: buffered!(post),
        access: Access::Roles(&[Role::Admin]),
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "reloadPolicy",
        summary: "Read the policy file again and put it into force, all or nothing",
        parameters: &[&parameter::DRY_RUN],
        request: RequestBody::None,
        answers: &[(200, Content::Json("PolicyChanges"), "What is different now; `changed` is false where nothing is")],
        errors: &[Code::NoPolicyFile, Code::PolicyRefused],
    },
];

/// `GET /admin/policy`
async fn show(call: &Call) -> Result<Response, Problem> {
    let since = *call.app.origin.since.lock().unwrap_or_else(PoisonError::into_inner);
    let policy = &call.policy;
    let routes = policy
        .routes
        .iter()
        .map(|route| json!({ "match": route.pattern.to_string(), "scope": route.scope, "upstream": route.upstream }));
    let said = json!({
        "file": call.app.origin.file(),
        "sha256": policy.sha256.map(|sha| sha.hex()),
        "loaded_at": &*rfc3339(since.0),
        "scopes": policy.scopes.keys().collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
        "findings": finding::rows(&policy.findings),
    });
    Ok(Answer::ok(said.to_string().into_bytes()).response())
}

/// `POST /admin/policy`
async fn post(call: &Call) -> Result<Response, Problem> {
    if !call.body.is_empty() {
        let detail = "send no body: the server reads the file that it was started with";
        return Err(Problem::new(Code::Malformed, detail));
    }
    let how = how(&call.query()?)?;
    if how == Reload::Apply {
        // The entry comes first: a crash between the two ends in a start, which reads the same file.
        let would = reloaded(call, Reload::DryRun).await?;
        if would["changed"] == Value::Bool(true) {
            let on = call.app.origin.file().unwrap_or_default();
            call.engine().note(Subject { on, ..Subject::default() }, "reloaded").await?;
        }
    }
    Ok(Answer::ok(reloaded(call, how).await?.to_string().into_bytes()).response())
}

async fn reloaded(call: &Call, how: Reload) -> Result<Value, Problem> {
    let (app, by) = (call.app.clone(), call.caller.id.clone());
    // Files are read: not where others wait for decisions.
    let said = tokio::task::spawn_blocking(move || reload(&app, &by, how)).await;
    said.map_err(|_| Problem::new(Code::Internal, "the reload did not end"))?
}

// A misspelt `dry_run` must not change anything, so an unknown name is refused here.
fn how(query: &[(String, String)]) -> Result<Reload, Problem> {
    match query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>()[..] {
        [] | [("dry_run", "false")] => Ok(Reload::Apply),
        [("dry_run", "true")] => Ok(Reload::DryRun),
        _ => Err(Problem::new(Code::Malformed, "the only parameter is `dry_run`, true or false")),
    }
}
