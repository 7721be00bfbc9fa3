//! One delivery as a receiver hears it: read by code that shares nothing with the sender.

use std::{io::BufRead, time::Instant};

use serde_json::Value;

/// One request, as it came.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub at: Instant,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Delivery {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let first = all.next();
        assert_eq!(all.next(), None, "{name} is there twice");
        first
    }

    pub fn number(&self, name: &str) -> u64 {
        self.header(name).unwrap_or_else(|| panic!("no {name}: {:?}", self.headers)).parse().unwrap()
    }

    pub fn seq(&self) -> u64 {
        self.number("fencepost-seq")
    }

    pub fn attempt(&self) -> u64 {
        self.number("fencepost-attempt")
    }

    pub fn lane(&self) -> &str {
        self.header("fencepost-lane").unwrap()
    }

    pub fn id(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        body["correlation_id"].as_str().unwrap().to_owned()
    }
}

/// The next request of a connection; none where it ends.
pub fn hear(reader: &mut impl BufRead) -> Option<Delivery> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let path = line.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None if line == "\r\n" => break,
            None => return None,
        }
    }
    let mut delivery = Delivery { at: Instant::now(), path, headers, body: Vec::new() };
    delivery.body.resize(delivery.number("content-length") as usize, 0);
    reader.read_exact(&mut delivery.body).ok()?;
    delivery.at = Instant::now();
    Some(delivery)
}
