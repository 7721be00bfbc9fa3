//! The servers start, die and come back with what they had acknowledged.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use fencepost_rig::{Cluster, PostgresServer, Proxy, RedisServer};

#[test]
fn a_postgresql_that_was_killed_comes_back_with_what_it_had() {
    let mut server = PostgresServer::start();
    let database = server.fresh_database();
    server.sql(&database, "CREATE TABLE t AS SELECT 7 AS n");
    server.kill();
    server.restart();
    assert_eq!(server.sql(&database, "SELECT n FROM t"), "7");
}

#[test]
fn a_redis_that_was_killed_comes_back_with_what_it_had() {
    let mut server = RedisServer::synced();
    assert_eq!(server.cli(&["SET", "a", "1"]), "OK");
    server.kill();
    server.restart();
    assert_eq!(server.cli(&["GET", "a"]), "1");
}

#[test]
fn a_cluster_survives_a_master() {
    let mut cluster = Cluster::start();
    cluster.kill_a_master();
    cluster.restart_all();
}

#[test]
fn a_proxy_lets_through_what_it_was_told_to_and_then_cuts() {
    let server = RedisServer::synced();
    let proxy = Proxy::start(server.port());
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let mut reply = [0; 7];
    client.write_all(b"PING\r\n").unwrap();
    client.read_exact(&mut reply).unwrap();
    proxy.cut_after(3);
    client.write_all(b"PING\r\n").unwrap();
    assert!(matches!(client.read(&mut reply), Ok(0) | Err(_)));
    let mut again = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    again.write_all(b"PING\r\n").unwrap();
    again.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}
