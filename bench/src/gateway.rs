//! The gateway next to nginx: both in front of the same trivial upstream, with 1 KiB asked and 1 KiB answered.
//! Never lets the two forward different requests: one route, one body, keep-alive on both sides.
//! Called by `contest`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use crate::http::{Connection, KEY_HOLE, Template};
use crate::keys::{Numbering, first_of, scatter};
use crate::load::{self, Connect, Driver};

const PATH: &str = "/orders";
const BODY_BYTES: usize = 1024;

/// The body that every upstream answers.
fn answer() -> String {
    padded(r#"{"order":"urn:order:1","pad":""#)
}

fn padded(start: &str) -> String {
    let pad = BODY_BYTES - start.len() - 2;
    format!("{start}{}\"}}", "x".repeat(pad))
}

/// The request of every driver; hole 0 is the key.
fn order() -> Template {
    Template::post(PATH, &padded(&format!(r#"{{"id":"{KEY_HOLE}","pad":""#)))
}

/// The nginx configuration of an upstream that answers by itself.
pub fn upstream_settings(dir: &Path, port: u16) -> String {
    let answer = answer();
    nginx_settings(dir, port, "", &format!("default_type application/json;\nreturn 200 '{answer}';"))
}

/// The nginx configuration of a proxy that forwards every request.
pub fn proxy_settings(dir: &Path, port: u16, upstream: u16) -> String {
    let pool =
        format!("upstream trivial {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000; }}");
    let pass = "proxy_http_version 1.1;\nproxy_set_header Connection \"\";\nproxy_pass http://trivial;";
    nginx_settings(dir, port, &pool, pass)
}

fn nginx_settings(dir: &Path, port: u16, pool: &str, location: &str) -> String {
    let dir = dir.display();
    format!(
        "user root;\nworker_processes auto;\ndaemon off;\npid {dir}/nginx.pid;\nerror_log {dir}/nginx-error.log warn;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000;\nclient_body_buffer_size 16k;\n\
         client_body_temp_path {dir}/body;\nproxy_temp_path {dir}/proxy;\nfastcgi_temp_path {dir}/fastcgi;\n\
         uwsgi_temp_path {dir}/uwsgi;\nscgi_temp_path {dir}/scgi;\n{pool}\n\
         server {{\nlisten 127.0.0.1:{port};\nlocation = /readyz {{ add_header Content-Length 0 always; return 200; }}\n\
         location / {{\n{location}\n}}\n}}\n}}\n"
    )
}

/// The policy of a gateway that fences the same request.
pub fn policy(upstream: u16) -> String {
    format!(
        "routes:\n  - match: \"POST {PATH}\"\n    upstream: \"http://127.0.0.1:{upstream}\"\n    scope: API_WRITE\n    \
         key: {{ method: \"request:method\", path: \"request:path\", idempotency_key: \"body:/id\" }}\n    \
         upstream_reads_bodies: true\n"
    )
}

/// Which keys a driver sends.
#[derive(Clone)]
pub enum Keys {
    /// New keys: each is sent once.
    Fresh,
    /// Keys 0..n, where n is this number, in scattered order and repeatedly.
    Known(u64),
    /// Keys from one counter that all connections share, so the keys written are exactly 0..n.
    Shared(Arc<AtomicU64>),
}

/// Posts orders through a proxy.
#[derive(Clone)]
pub struct Orders {
    pub port: u16,
    /// Turns key numbers into keys.
    pub numbering: Numbering,
    /// Which keys are sent.
    pub keys: Keys,
}

/// A connection of `Orders`.
pub struct OrdersDriver {
    connection: Connection,
    plan: Orders,
    turn: u64,
    order: Template,
    answer: String,
}

impl Connect for Orders {
    type Driver = OrdersDriver;
    async fn connect(&self, connection: usize) -> Result<OrdersDriver> {
        Ok(OrdersDriver {
            connection: Connection::open(self.port).await?,
            plan: self.clone(),
            turn: first_of(connection),
            order: order(),
            answer: answer(),
        })
    }
}

impl Driver for OrdersDriver {
    async fn step(&mut self) -> Result<()> {
        let number = match &self.plan.keys {
            Keys::Fresh => self.turn,
            Keys::Known(count) => scatter(self.turn) % count,
            Keys::Shared(next) => next.fetch_add(1, Ordering::Relaxed),
        };
        self.turn += 1;
        self.plan.numbering.write(number, self.order.hole(0));
        let reply = self.connection.exchange(self.order.bytes()).await?;
        if reply.status != 200 || reply.body != self.answer.as_bytes() {
            return Err(reply.unexpected("the upstream's answer"));
        }
        Ok(())
    }
}

/// Posts orders until keys 0..count are sealed.
pub fn fill(port: u16, numbering: Numbering, count: u64, connections: usize) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let orders = Orders { port, numbering, keys: Keys::Shared(next.clone()) };
    load::until_done(connections, orders, move || next.load(Ordering::Relaxed) < count)
}
