//! The bytes of HTTP/2: frames and header fields, as no library would write them. Knows no sockets, so that other
//! crates' tests can include it.

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A string of a header block, without compression.
fn string(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match text.len() {
        short @ ..127 => out.push(u8::try_from(short).unwrap()),
        long => {
            out.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                out.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            out.push(u8::try_from(rest).unwrap());
        }
    }
    out.extend(text);
    out
}

/// One header field as a literal that nobody remembers.
pub fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

/// Header fields without compression: literals, some with a name from the static table.
pub fn fields(method: u8, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut out = [&[method, 0x86, 0x04][..], &string(path.as_bytes()), &[0x01], &string(b"a")].concat();
    for (name, value) in more {
        out.extend(literal(name.as_bytes(), value.as_bytes()));
    }
    out
}

pub const GET: u8 = 0x82;
pub const POST: u8 = 0x83;

pub fn ask(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &fields(GET, path, &[]))
}
