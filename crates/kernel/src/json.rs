//! Strict JSON: reads a document without losing a byte of it, and writes the form in which two are compared.
//! Refuses what would let two readers disagree: repeated member names, bad UTF-8, lone surrogates, deep nesting.
//! The canonical form is RFC 8785 except that numbers keep their exact decimal value. Called by `body` and the wire.

use std::{borrow::Cow, fmt};

/// What stands where a value is masked.
pub const MASKED: &[u8] = b"\"***\"";

/// Containers may be nested this deep.
pub const DEPTH_MAX: usize = 64;

/// A document may hold this many values: a few megabytes of `[0,0,…` must not become a hundred in memory.
pub const VALUES_MAX: usize = 250_000;

/// A value with the exact text it was written as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node<'a> {
    /// The text, without surrounding white space.
    pub raw: &'a str,
    /// What it says.
    pub value: Value<'a>,
}

/// A JSON value that borrows from its document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; its text is the node's.
    Number,
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Node<'a>>),
    /// An object, in the order written.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    /// The member of an object.
    pub fn get(&self, name: &str) -> Option<&Node<'a>> {
        self.members().iter().find(|(known, _)| known == name).map(|(_, node)| node)
    }

    /// The members of an object; none for anything else.
    pub fn members(&self) -> &[(Cow<'a, str>, Node<'a>)] {
        match &self.value {
            Value::Object(members) => members,
            _ => &[],
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// A number written without fraction or exponent.
    pub fn as_integer(&self) -> Option<i128> {
        matches!(self.value, Value::Number).then(|| self.raw.parse().ok()).flatten()
    }

    /// A non-negative whole number.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_integer().and_then(|number| number.try_into().ok())
    }
}

/// Why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Where, in bytes.
    pub offset: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Not UTF-8.
    Encoding,
    /// Not JSON.
    Syntax,
    /// The document ends too early.
    End,
    /// Something follows the document.
    Trailing,
    /// Nested deeper than [`DEPTH_MAX`].
    Depth,
    /// More values than [`VALUES_MAX`].
    Values,
    /// A member name is used twice in one object.
    Repeated(String),
    /// Half of a surrogate pair.
    Surrogate,
    /// An exponent that no reader agrees on.
    Exponent,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::Encoding => write!(f, "invalid UTF-8 at byte {}", self.offset),
            Problem::Syntax => write!(f, "invalid JSON at byte {}", self.offset),
            Problem::End => write!(f, "the JSON document is cut off at byte {}", self.offset),
            Problem::Trailing => write!(f, "unexpected text after the JSON document at byte {}", self.offset),
            Problem::Depth => write!(f, "nested deeper than {DEPTH_MAX} at byte {}", self.offset),
            Problem::Values => write!(f, "more than {VALUES_MAX} values"),
            Problem::Repeated(name) => write!(f, "member name {name:?} repeated at byte {}", self.offset),
            Problem::Surrogate => write!(f, "lone surrogate in a string at byte {}", self.offset),
            Problem::Exponent => write!(f, "number with an absurd exponent at byte {}", self.offset),
        }
    }
}

impl std::error::Error for Error {}

/// Reads one document.
pub fn parse(bytes: &[u8]) -> Result<Node<'_>, Error> {
    let text =
        std::str::from_utf8(bytes).map_err(|bad| Error { offset: bad.valid_up_to(), problem: Problem::Encoding })?;
    let mut reader = Reader { text, at: 0, depth: 0, values: 0 };
    reader.space();
    let node = reader.node()?;
    reader.space();
    if reader.at < text.len() {
        return reader.fail(Problem::Trailing);
    }
    Ok(node)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    values: usize,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, problem: Problem) -> Result<T, Error> {
        Err(Error { offset: self.at, problem })
    }

    fn unexpected<T>(&self) -> Result<T, Error> {
        self.fail(if self.at >= self.text.len() { Problem::End } else { Problem::Syntax })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn node(&mut self) -> Result<Node<'a>, Error> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return self.fail(Problem::Values);
        }
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return self.unexpected(),
        };
        Ok(Node { raw: &self.text[start..self.at], value })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value<'a>, Error>) -> Result<Value<'a>, Error> {
        if self.depth == DEPTH_MAX {
            return self.fail(Problem::Depth);
        }
        self.depth += 1;
        self.at += 1;
        self.space();
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, Error> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        self.fail(if word.starts_with(&self.text[self.at..]) { Problem::End } else { Problem::Syntax })
    }

    fn array(&mut self) -> Result<Value<'a>, Error> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.node()?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return self.unexpected(),
            }
            self.space();
        }
    }

    fn object(&mut self) -> Result<Value<'a>, Error> {
        let mut members: Vec<(Cow<'a, str>, Node<'a>)> = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.unexpected();
            }
            let name = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.unexpected();
            }
            self.at += 1;
            self.space();
            members.push((name, self.node()?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return match repeated(&members) {
                        Some(name) => self.fail(Problem::Repeated(name)),
                        None => Ok(Value::Object(members)),
                    };
                }
                _ => return self.unexpected(),
            }
            self.space();
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        self.at += 1;
        let start = self.at;
        let mut owned: Option<String> = None;
        let mut plain = start;
        loop {
            match self.peek() {
                None => return self.fail(Problem::End),
                Some(b'"') => {
                    let rest = &self.text[plain..self.at];
                    self.at += 1;
                    return Ok(match owned {
                        None => Cow::Borrowed(rest),
                        Some(mut text) => {
                            text.push_str(rest);
                            Cow::Owned(text)
                        }
                    });
                }
                Some(b'\\') => {
                    let text = owned.get_or_insert_default();
                    text.push_str(&self.text[plain..self.at]);
                    let unescaped = self.escape()?;
                    owned.get_or_insert_default().push(unescaped);
                    plain = self.at;
                }
                Some(0..=0x1f) => return self.fail(Problem::Syntax),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        self.at += 1;
        let Some(letter) = self.peek() else { return self.fail(Problem::End) };
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&first) {
                    if !self.text[self.at..].starts_with("\\u") {
                        return self.fail(Problem::Surrogate);
                    }
                    self.at += 2;
                    let second = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return self.fail(Problem::Surrogate);
                    }
                    0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                match char::from_u32(code) {
                    Some(letter) => letter,
                    None => return self.fail(Problem::Surrogate),
                }
            }
            _ => {
                self.at -= 1;
                return self.fail(Problem::Syntax);
            }
        })
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            match self.peek().map(|digit| (digit as char).to_digit(16)) {
                Some(Some(digit)) => code = code * 16 + digit,
                _ => return self.unexpected(),
            }
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Value<'a>, Error> {
        let whole = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return self.unexpected(),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            let start = self.at;
            self.digits()?;
            if self.text[start..self.at].trim_start_matches('0').len() > EXPONENT_DIGITS_MAX
                || Decimal::read(&self.text[whole..self.at]).power.unsigned_abs() > POWER_MAX
            {
                return self.fail(Problem::Exponent);
            }
        }
        Ok(Value::Number)
    }

    fn digits(&mut self) -> Result<(), Error> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if start == self.at { self.unexpected() } else { Ok(()) }
    }
}

fn repeated(members: &[(Cow<'_, str>, Node<'_>)]) -> Option<String> {
    let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned())
}

/// The form in which two documents are the same exactly when they mean the same.
pub fn canonical(node: &Node<'_>) -> Vec<u8> {
    canonical_masked(node, &[])
}

/// The canonical form, with `"***"` for every value under one of the pointers (`*` stands for any one step).
pub fn canonical_masked(node: &Node<'_>, mask: &[String]) -> Vec<u8> {
    let mut out = Vec::with_capacity(node.raw.len());
    let masks: Vec<&str> = mask.iter().map(String::as_str).collect();
    write_node(&mut out, node, &masks);
    out
}

fn write_node(out: &mut Vec<u8>, node: &Node<'_>, masks: &[&str]) {
    if masks.contains(&"") {
        return out.extend_from_slice(MASKED);
    }
    match &node.value {
        Value::Null | Value::Bool(_) => out.extend_from_slice(node.raw.as_bytes()),
        Value::Number => write_number(out, node.raw),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                let below = if masks.is_empty() { Vec::new() } else { step(masks, &index.to_string()) };
                write_node(out, item, &below);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            let mut sorted: Vec<_> = members.iter().collect();
            // RFC 8785 sorts by UTF-16 code units, which differs from UTF-8 order above the basic plane.
            sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            for (index, (name, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                let below = if masks.is_empty() { Vec::new() } else { step(masks, name) };
                write_node(out, member, &below);
            }
            out.push(b'}');
        }
    }
}

/// The masks that go on below one step of a pointer.
pub(crate) fn step<'m>(masks: &[&'m str], name: &str) -> Vec<&'m str> {
    masks
        .iter()
        .filter_map(|mask| {
            let rest = mask.strip_prefix('/')?;
            let (first, below) = rest.find('/').map_or((rest, ""), |end| rest.split_at(end));
            (first == "*" || first.replace("~1", "/").replace("~0", "~") == name).then_some(below)
        })
        .collect()
}

/// What follows the backslash for each byte that needs one; `u` where only the long form will do, 0 where none is needed.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = b'u';
        control += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Writes a string with the escapes of RFC 8785 and no others.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| ESCAPES[usize::from(*byte)] != 0) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        match ESCAPES[usize::from(byte)] {
            b'u' => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
            short => out.extend_from_slice(&[b'\\', short]),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

const EXPONENT_DIGITS_MAX: usize = 15;
const POWER_MAX: u64 = 10u64.pow(EXPONENT_DIGITS_MAX as u32) - 1;

/// The exact value of a number: its digits without zeros at either end, and the power of ten of the last one.
/// No digits at all is zero.
struct Decimal {
    negative: bool,
    digits: String,
    power: i64,
}

impl Decimal {
    fn read(raw: &str) -> Self {
        let (negative, unsigned) = raw.strip_prefix('-').map_or((false, raw), |rest| (true, rest));
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = [whole, fraction].concat();
        let length = digits.trim_end_matches('0').len();
        let trailing = digits.len() - length;
        digits.truncate(length);
        digits.drain(..digits.len() - digits.trim_start_matches('0').len());
        if digits.is_empty() {
            return Self { negative: false, digits, power: 0 };
        }
        // `parse` admits at most 15 exponent digits, so this neither fails nor overflows.
        let power = exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64 + trailing as i64;
        Self { negative, digits, power }
    }
}

// One text per decimal value. Short values are written out (1.50 is 1.5, 1e2 is 100); long exponents stay exponents,
// so 1e400000 costs nothing. What is written is read again as the same value, with the same power.
fn write_number(out: &mut Vec<u8>, raw: &str) {
    let Decimal { negative, digits, power } = Decimal::read(raw);
    if digits.is_empty() {
        return out.push(b'0');
    }
    if negative {
        out.push(b'-');
    }
    let point = digits.len() as i64 + power;
    if power >= 0 && point <= 40 {
        out.extend_from_slice(digits.as_bytes());
        out.extend(std::iter::repeat_n(b'0', power as usize));
    } else if power < 0 && point > 0 {
        let (whole, fraction) = digits.split_at(point as usize);
        out.extend_from_slice(whole.as_bytes());
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    } else if power < 0 && point > -7 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-point) as usize));
        out.extend_from_slice(digits.as_bytes());
    } else {
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(format!("e{power}").as_bytes());
    }
}
