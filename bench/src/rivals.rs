//! The same cycle on Redis and on PostgreSQL: take the key if it is free, then write the receipt.
//! Never batches or pipelines: one request an operation, one in flight a connection, as for fencepost.
//! Called by `contest`; `ingest` shares the connection to PostgreSQL.

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::{Client, NoTls, Statement};

use crate::keys::{KEY_LEN, Numbering, RECEIPT, first_of};
use crate::load::{Connect, Driver};

/// `SET key pending NX EX 60`, then `SET key receipt EX 604800`.
#[derive(Clone)]
pub struct Redis {
    pub port: u16,
    /// Turns key numbers into keys.
    pub numbering: Numbering,
}

/// A connection of `Redis`.
pub struct RedisDriver {
    stream: TcpStream,
    numbering: Numbering,
    next: u64,
    claim: Frame,
    seal: Frame,
}

/// A prebuilt Redis command with a hole for the key.
struct Frame {
    bytes: Vec<u8>,
    key_at: usize,
}

impl Frame {
    fn new(words: &[&str]) -> Frame {
        let mut text = format!("*{}\r\n", words.len());
        let mut key_at = 0;
        for (position, word) in words.iter().enumerate() {
            text += &format!("${}\r\n", word.len());
            if position == 1 {
                key_at = text.len() + word.len() - KEY_LEN;
            }
            text += &format!("{word}\r\n");
        }
        Frame { bytes: text.into_bytes(), key_at }
    }

    fn key(&mut self) -> &mut [u8] {
        &mut self.bytes[self.key_at..self.key_at + KEY_LEN]
    }
}

impl Connect for Redis {
    type Driver = RedisDriver;
    async fn connect(&self, connection: usize) -> Result<RedisDriver> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let key = format!("API_WRITE:{}", "K".repeat(KEY_LEN));
        Ok(RedisDriver {
            stream,
            numbering: self.numbering,
            next: first_of(connection),
            claim: Frame::new(&["SET", &key, "pending", "NX", "EX", "60"]),
            seal: Frame::new(&["SET", &key, RECEIPT, "EX", "604800"]),
        })
    }
}

impl Driver for RedisDriver {
    async fn step(&mut self) -> Result<()> {
        self.numbering.write(self.next, self.claim.key());
        self.numbering.write(self.next, self.seal.key());
        self.next += 1;
        expect_ok(&mut self.stream, &self.claim.bytes).await?;
        expect_ok(&mut self.stream, &self.seal.bytes).await
    }
}

async fn expect_ok(stream: &mut TcpStream, request: &[u8]) -> Result<()> {
    const OK: &[u8] = b"+OK\r\n";
    stream.write_all(request).await?;
    let mut reply = [0; 512];
    let mut filled = 0;
    while !reply[..filled].ends_with(b"\r\n") {
        match stream.read(&mut reply[filled..]).await? {
            0 => bail!("Redis closed the connection or sent too long a reply"),
            n => filled += n,
        }
    }
    if &reply[..filled] != OK {
        bail!("expected +OK from Redis, got {:?}", String::from_utf8_lossy(&reply[..filled]));
    }
    Ok(())
}

/// `INSERT … ON CONFLICT DO NOTHING`, then `UPDATE`; both are prepared, each is its own transaction.
#[derive(Clone)]
pub struct Postgres {
    pub port: u16,
    /// Turns key numbers into keys.
    pub numbering: Numbering,
}

/// A connection of `Postgres`.
pub struct PostgresDriver {
    client: Client,
    insert: Statement,
    update: Statement,
    numbering: Numbering,
    next: u64,
}

const TABLE: &str = "DROP SCHEMA public CASCADE;
    CREATE SCHEMA public;
    CREATE TABLE fences (
        key text PRIMARY KEY,
        state text NOT NULL,
        receipt text,
        expires_at timestamptz NOT NULL);
    CHECKPOINT;";
const INSERT: &str = "INSERT INTO fences (key, state, expires_at)
    VALUES ($1, 'pending', now() + interval '60 s') ON CONFLICT DO NOTHING";
const UPDATE: &str = "UPDATE fences SET state = 'sealed', receipt = $2, expires_at = now() + interval '7 d'
    WHERE key = $1 AND state = 'pending'";

impl Postgres {
    /// A connection to the server.
    pub async fn client(port: u16) -> Result<Client> {
        let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres connect_timeout=5");
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        // The task ends with the client. A query that fails on the connection returns the same error.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Makes an empty table, and checks that the server's settings make the comparison fair.
    pub async fn prepare(port: u16) -> Result<()> {
        let client = Postgres::client(port).await?;
        client.batch_execute(TABLE).await?;
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            let row = client.query_one(&format!("SHOW {setting}"), &[]).await?;
            let value: &str = row.get(0);
            if value != "on" {
                bail!("PostgreSQL runs with {setting} = {value}");
            }
        }
        Ok(())
    }
}

impl Connect for Postgres {
    type Driver = PostgresDriver;
    async fn connect(&self, connection: usize) -> Result<PostgresDriver> {
        let client = Postgres::client(self.port).await?;
        let insert = client.prepare(INSERT).await?;
        let update = client.prepare(UPDATE).await?;
        Ok(PostgresDriver { client, insert, update, numbering: self.numbering, next: first_of(connection) })
    }
}

impl Driver for PostgresDriver {
    async fn step(&mut self) -> Result<()> {
        let mut key = [0; KEY_LEN];
        self.numbering.write(self.next, &mut key);
        self.next += 1;
        let key = std::str::from_utf8(&key)?;
        if self.client.execute(&self.insert, &[&key]).await? != 1 {
            bail!("the INSERT of a new key touched no row");
        }
        if self.client.execute(&self.update, &[&key, &RECEIPT]).await? != 1 {
            bail!("the UPDATE of a pending key touched no row");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_resp_with_the_key_in_its_hole() {
        let key = format!("F:{}", "K".repeat(KEY_LEN));
        let mut frame = Frame::new(&["SET", &key, "v"]);
        frame.key().fill(b'a');
        let wanted = format!("*3\r\n$3\r\nSET\r\n$34\r\nF:{}\r\n$1\r\nv\r\n", "a".repeat(KEY_LEN));
        assert_eq!(String::from_utf8(frame.bytes).unwrap(), wanted);
    }
}
