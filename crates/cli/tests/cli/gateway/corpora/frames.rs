//! Frames of HTTP/2 as h2spec sends them: those that break a rule, and those that a server must bear.

use super::{
    Case, UPSTREAMS,
    http2::{
        Expected, Field, LATER, block,
        bytes::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RESET, SETTINGS, WINDOW_UPDATE, frame},
        field, hello,
    },
};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = vec![
        field(":method", method),
        field(":scheme", "http"),
        field(":path", path),
        field(":authority", "shop.example"),
    ];
    fields.extend(more.iter().map(|(name, value)| field(name, value)));
    block(&fields)
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// Frames as h2spec sends them, by the sections of RFC 9113 and RFC 7541. A lawful request follows those that must do no harm.
pub fn cases() -> Vec<(Case, Expected)> {
    use Expected::{Connection, Refused, Served};
    let mut all: Vec<(Case, Expected)> = Vec::new();
    for upstream in UPSTREAMS {
        let path = format!("/{upstream}/write");
        let get = request("GET", &path, &[]);
        let whole = END_HEADERS | END_STREAM;
        let one = |stream| frame(HEADERS, whole, stream, &get);
        let open = |stream| frame(HEADERS, END_HEADERS, stream, &get);
        let with = |more: &[(&str, &str)]| frame(HEADERS, whole, 1, &request("GET", &path, more));
        let partial = frame(HEADERS, END_STREAM, 1, &get[..10]);
        let u32s = |value: u32| value.to_be_bytes().to_vec();
        let itself = [u32s(1), vec![255]].concat();
        let raw = |fields: &[Field]| frame(HEADERS, whole, 1, &block(fields));
        let late_pseudo = [field("x", "y"), field(":method", "GET")].to_vec();
        let no_method = raw(&[field(":scheme", "http"), field(":path", &path), field(":authority", "a")]);
        let no_scheme = raw(&[field(":method", "GET"), field(":path", &path), field(":authority", "a")]);
        let no_path = raw(&[field(":method", "GET"), field(":scheme", "http"), field(":authority", "a")]);
        let cases: Vec<(&str, Expected, Vec<u8>)> = vec![
            ("4.1 unknown frame", Served, frame(0xfa, 0, 0, b"unknown")),
            ("4.1 unknown flags", Served, frame(PING, 0xfe, 0, &[0; 8])),
            ("4.1 reserved bit", Served, frame(PING, 0, 0x8000_0000, &[0; 8])),
            ("4.2 data too large", Connection, [open(1), frame(DATA, END_STREAM, 1, &[0; 16_385])].concat()),
            ("4.2 headers too large", Connection, frame(HEADERS, whole, 1, &[0; 16_385])),
            ("4.3 index 0", Connection, frame(HEADERS, whole, 1, &[0x80])),
            ("4.3 priority within a block", Connection, [partial.clone(), frame(PRIORITY, 0, 1, &[0; 5])].concat()),
            ("4.3 headers within a block", Connection, [partial.clone(), one(3)].concat()),
            ("5.1 data on idle", Connection, frame(DATA, END_STREAM, 1, b"x")),
            ("5.1 reset on idle", Connection, frame(RESET, 0, 1, &u32s(8))),
            ("5.1 window on idle", Connection, frame(WINDOW_UPDATE, 0, 1, &u32s(100))),
            ("5.1 continuation on idle", Connection, frame(CONTINUATION, END_HEADERS, 1, &get)),
            ("5.1 data behind the end", Refused, [one(1), frame(DATA, END_STREAM, 1, b"x")].concat()),
            ("5.1 headers behind the end", Refused, [one(1), one(1)].concat()),
            (
                "5.1 continuation behind the end",
                Connection,
                [one(1), frame(CONTINUATION, END_HEADERS, 1, &get)].concat(),
            ),
            (
                "5.1 data behind a reset",
                Refused,
                [open(1), frame(RESET, 0, 1, &u32s(8)), frame(DATA, END_STREAM, 1, b"x")].concat(),
            ),
            ("5.1 headers behind a reset", Refused, [open(1), frame(RESET, 0, 1, &u32s(8)), one(1)].concat()),
            ("5.1.1 even stream", Connection, one(2)),
            ("5.1.1 lower stream", Connection, [one(5), one(3)].concat()),
            (
                "5.3.1 headers depend on themselves",
                Refused,
                frame(HEADERS, whole | WITH_PRIORITY, 1, &[itself.clone(), get.clone()].concat()),
            ),
            ("5.3.1 priority depends on itself", Refused, [open(1), frame(PRIORITY, 0, 1, &itself)].concat()),
            ("5.5 unknown frame within a block", Connection, [partial.clone(), frame(0xfa, 0, 1, b"x")].concat()),
            ("6.1 data on stream 0", Connection, frame(DATA, END_STREAM, 0, b"x")),
            (
                "6.1 data padded too far",
                Connection,
                [open(1), frame(DATA, END_STREAM | PADDED, 1, &[6, b'x'])].concat(),
            ),
            ("6.2 headers on stream 0", Connection, frame(HEADERS, whole, 0, &get)),
            ("6.2 headers padded too far", Connection, frame(HEADERS, whole | PADDED, 1, &[&[255][..], &get].concat())),
            ("6.3 priority on stream 0", Connection, frame(PRIORITY, 0, 0, &[0; 5])),
            ("6.3 priority of 4 bytes", Refused, [open(1), frame(PRIORITY, 0, 1, &[0; 4])].concat()),
            ("6.4 reset on stream 0", Connection, frame(RESET, 0, 0, &u32s(8))),
            ("6.4 reset of 3 bytes", Connection, [open(1), frame(RESET, 0, 1, &[0; 3])].concat()),
            ("6.5 settings acknowledged with a payload", Connection, frame(SETTINGS, 1, 0, &[0; 6])),
            ("6.5 settings on a stream", Connection, frame(SETTINGS, 0, 1, &[0; 6])),
            ("6.5 settings of 3 bytes", Connection, frame(SETTINGS, 0, 0, &[0; 3])),
            ("6.5.2 push 2", Connection, setting(2, 2)),
            ("6.5.2 window too large", Connection, setting(4, 0x8000_0000)),
            ("6.5.2 frame size too small", Connection, setting(5, 16_383)),
            ("6.5.2 frame size too large", Connection, setting(5, 16_777_216)),
            ("6.5.2 unknown setting", Served, setting(0xff, 1)),
            ("6.7 ping on a stream", Connection, frame(PING, 0, 1, &[0; 8])),
            ("6.7 ping of 6 bytes", Connection, frame(PING, 0, 0, &[0; 6])),
            ("6.7 ping answered unasked", Served, frame(PING, 1, 0, &[0; 8])),
            ("6.8 goaway on a stream", Connection, frame(GOAWAY, 0, 1, &[0; 8])),
            ("6.9 window of the connection by 0", Connection, frame(WINDOW_UPDATE, 0, 0, &u32s(0))),
            ("6.9 window of a stream by 0", Refused, [open(1), frame(WINDOW_UPDATE, 0, 1, &u32s(0))].concat()),
            ("6.9 window of 3 bytes", Connection, frame(WINDOW_UPDATE, 0, 0, &[0; 3])),
            (
                "6.9.1 window of the connection past its end",
                Connection,
                frame(WINDOW_UPDATE, 0, 0, &u32s(0x7fff_ffff)).repeat(2),
            ),
            (
                "6.9.1 window of a stream past its end",
                Refused,
                [open(1), frame(WINDOW_UPDATE, 0, 1, &u32s(0x7fff_ffff)).repeat(2)].concat(),
            ),
            (
                "6.10 continuation on stream 0",
                Connection,
                [partial.clone(), frame(CONTINUATION, END_HEADERS, 0, &get)].concat(),
            ),
            ("6.10 continuation of nothing", Connection, [one(1), frame(CONTINUATION, END_HEADERS, 3, &get)].concat()),
            (
                "6.10 continuation behind data",
                Connection,
                [open(1), frame(DATA, 0, 1, b"x"), frame(CONTINUATION, END_HEADERS, 1, &get)].concat(),
            ),
            (
                "6.10 block in three",
                Served,
                [
                    frame(HEADERS, END_STREAM, 1, &get[..10]),
                    frame(CONTINUATION, 0, 1, &get[10..20]),
                    frame(CONTINUATION, END_HEADERS, 1, &get[20..]),
                ]
                .concat(),
            ),
            ("7 reset with an unknown code", Served, [open(1), frame(RESET, 0, 1, &u32s(0xff))].concat()),
            (
                "8.1 second headers without an end",
                Refused,
                [open(1), frame(HEADERS, END_HEADERS, 1, &block(&[field("x", "y")]))].concat(),
            ),
            ("8.1.2 capital letters", Refused, with(&[("X-Test", "ok")])),
            ("8.1.2.1 unknown pseudo", Refused, with(&[(":test", "ok")])),
            ("8.1.2.1 pseudo of answers", Refused, with(&[(":status", "200")])),
            (
                "8.1.2.1 pseudo in trailers",
                Refused,
                [open(1), frame(DATA, 0, 1, b"x"), frame(HEADERS, whole, 1, &block(&[field(":method", "GET")]))]
                    .concat(),
            ),
            (
                "8.1.2.1 pseudo behind a field",
                Refused,
                frame(HEADERS, whole, 1, &[get.clone(), block(&late_pseudo)].concat()),
            ),
            ("8.1.2.2 connection", Refused, with(&[("connection", "keep-alive")])),
            ("8.1.2.2 te", Refused, with(&[("te", "trailers, deflate")])),
            ("8.1.2.3 empty path", Refused, frame(HEADERS, whole, 1, &request("GET", "", &[]))),
            ("8.1.2.3 no method", Refused, no_method),
            ("8.1.2.3 no scheme", Refused, no_scheme),
            ("8.1.2.3 no path", Refused, no_path),
            ("8.1.2.3 two methods", Refused, with(&[(":method", "GET")])),
            ("8.1.2.3 two schemes", Refused, with(&[(":scheme", "http")])),
            ("8.1.2.3 two paths", Refused, with(&[(":path", "/")])),
            ("8.1.2.6 length without data", Refused, with(&[("content-length", "1")])),
            (
                "8.1.2.6 length of other data",
                Refused,
                [
                    frame(HEADERS, END_HEADERS, 1, &request("POST", &path, &[("content-length", "1")])),
                    frame(DATA, END_STREAM, 1, b"test"),
                ]
                .concat(),
            ),
            (
                "8.1.2.6 length of two frames",
                Refused,
                [
                    frame(HEADERS, END_HEADERS, 1, &request("POST", &path, &[("content-length", "1")])),
                    frame(DATA, 0, 1, b"te"),
                    frame(DATA, END_STREAM, 1, b"st"),
                ]
                .concat(),
            ),
            ("8.2 promise", Connection, frame(PUSH_PROMISE, END_HEADERS, 1, &[u32s(2), get.clone()].concat())),
            (
                "7541 2.3.3 index out of range",
                Connection,
                frame(HEADERS, whole, 1, &[get.clone(), vec![0xff, 0x20]].concat()),
            ),
            (
                "7541 4.2 size update at the end",
                Connection,
                frame(HEADERS, whole, 1, &[get.clone(), vec![0x3f, 0x01]].concat()),
            ),
            (
                "7541 5.2 padding of 8 bits",
                Connection,
                frame(
                    HEADERS,
                    whole,
                    1,
                    &[get.clone(), b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff".to_vec()].concat(),
                ),
            ),
            (
                "7541 5.2 end of string within one",
                Connection,
                frame(
                    HEADERS,
                    whole,
                    1,
                    &[get.clone(), b"\x00\x85\xf2\xb2\x4a\x87\xff\x83\xff\xff\xff\xff\xff".to_vec()].concat(),
                ),
            ),
            (
                "7541 6.3 size update too large",
                Connection,
                frame(HEADERS, whole, 1, &[vec![0x3f, 0xe1, 0xff, 0xff, 0x7f], get.clone()].concat()),
            ),
        ];
        for (name, expected, said) in cases {
            let later = if expected == Served { one(LATER) } else { Vec::new() };
            let bytes = [hello(), said, later].concat();
            all.push((Case::new(format!("{name}, {upstream}"), upstream, bytes), expected));
        }
        let wrong = b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec();
        all.push((Case::new(format!("3.4 wrong preface, {upstream}"), upstream, wrong), Connection));
    }
    all
}
