//! Strict JSON: reads a document without losing a byte, and writes the canonical form for comparisons.
//! Refuses documents that readers could disagree on: repeated names, bad UTF-8, lone surrogates, deep nesting.
//! The canonical form is RFC 8785, but numbers keep their exact value. Called by the kernel and all crates above.

mod canonical;

use std::{borrow::Cow, fmt};

pub(crate) use canonical::step;
use canonical::{Decimal, EXPONENT_DIGITS_MAX, POWER_MAX, plain};
pub use canonical::{canonical, canonical_masked, write_name, write_string};

/// Written in place of a masked value.
pub const MASKED: &[u8] = b"\"***\"";

/// The deepest nesting of arrays and objects.
pub const DEPTH_MAX: usize = 64;

/// The most values in a document: a few megabytes of `[0,0,…` must not take a hundred in memory.
pub const VALUES_MAX: usize = 250_000;

/// Up to this many names, each is compared with each; more are sorted first.
const COMPARED_MAX: usize = 12;

/// A value with its exact text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonNode<'a> {
    /// The text, without surrounding white space.
    pub raw: &'a str,
    pub value: Value<'a>,
}

/// A JSON value that borrows from its document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; its text is in the node.
    Number,
    /// A string, unescaped.
    String(Cow<'a, str>),
    Array(Vec<JsonNode<'a>>),
    /// An object, with its members in the order of the text.
    Object(Vec<(Cow<'a, str>, JsonNode<'a>)>),
}

impl<'a> JsonNode<'a> {
    /// The value of the member with this name.
    pub fn get(&self, name: &str) -> Option<&JsonNode<'a>> {
        self.members().iter().find(|(known, _)| known == name).map(|(_, node)| node)
    }

    /// The members of an object; empty for any other value.
    pub fn members(&self) -> &[(Cow<'a, str>, JsonNode<'a>)] {
        match &self.value {
            Value::Object(members) => members,
            _ => &[],
        }
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value, if it is a number written without fraction or exponent.
    pub fn as_integer(&self) -> Option<i128> {
        matches!(self.value, Value::Number).then(|| self.raw.parse().ok()).flatten()
    }

    /// The value, if it is a non-negative integer that fits.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_integer().and_then(|number| number.try_into().ok())
    }
}

/// Why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The place in the document, in bytes from its start.
    pub offset: usize,
    /// The kind of error.
    pub problem: JsonProblem,
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonProblem {
    /// Not UTF-8.
    Encoding,
    /// Not JSON; says what is wrong.
    Syntax(&'static str),
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
    /// Half of a surrogate pair without the other half.
    Surrogate,
    /// An exponent of more than 15 digits: readers disagree about such a number.
    Exponent,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            JsonProblem::Encoding => write!(f, "invalid UTF-8 at byte {}", self.offset),
            JsonProblem::Syntax(why) => write!(f, "invalid JSON at byte {}: {why}", self.offset),
            JsonProblem::End => write!(f, "the JSON document is cut off at byte {}", self.offset),
            JsonProblem::Trailing => write!(f, "unexpected text after the JSON document at byte {}", self.offset),
            JsonProblem::Depth => write!(f, "nested deeper than {DEPTH_MAX} at byte {}", self.offset),
            JsonProblem::Values => write!(f, "more than {VALUES_MAX} values"),
            JsonProblem::Repeated(name) => write!(f, "member name {name:?} repeated at byte {}", self.offset),
            JsonProblem::Surrogate => write!(f, "lone surrogate in a string at byte {}", self.offset),
            JsonProblem::Exponent => write!(f, "number with an absurd exponent at byte {}", self.offset),
        }
    }
}

impl std::error::Error for Error {}

/// Parses one whole document.
pub fn parse(bytes: &[u8]) -> Result<JsonNode<'_>, Error> {
    let text = std::str::from_utf8(bytes)
        .map_err(|bad| Error { offset: bad.valid_up_to(), problem: JsonProblem::Encoding })?;
    let mut reader = Reader { text, at: 0, depth: 0, values: 0 };
    reader.space();
    let node = reader.node()?;
    reader.space();
    if reader.at < text.len() {
        return reader.fail(JsonProblem::Trailing);
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
    fn fail<T>(&self, problem: JsonProblem) -> Result<T, Error> {
        Err(Error { offset: self.at, problem })
    }

    fn unexpected<T>(&self, why: &'static str) -> Result<T, Error> {
        self.fail(if self.at >= self.text.len() { JsonProblem::End } else { JsonProblem::Syntax(why) })
    }

    // Another value must follow a comma: a closing bracket there is the commonest mistake in JSON written by hand.
    fn after_comma(&self, close: u8, why: &'static str) -> Result<(), Error> {
        if self.peek() == Some(close) { self.fail(JsonProblem::Syntax(why)) } else { Ok(()) }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn node(&mut self) -> Result<JsonNode<'a>, Error> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return self.fail(JsonProblem::Values);
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
            Some(b'\'') => return self.unexpected("a string needs double quotes"),
            Some(b'/') => return self.unexpected("JSON has no comments"),
            _ => return self.unexpected("a value is expected"),
        };
        Ok(JsonNode { raw: &self.text[start..self.at], value })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value<'a>, Error>) -> Result<Value<'a>, Error> {
        if self.depth == DEPTH_MAX {
            return self.fail(JsonProblem::Depth);
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
        let why = "a value is expected; the only words are true, false and null";
        self.fail(if word.starts_with(&self.text[self.at..]) { JsonProblem::End } else { JsonProblem::Syntax(why) })
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
                _ => return self.unexpected("a comma or ] is expected"),
            }
            self.space();
            self.after_comma(b']', "trailing comma before ]")?;
        }
    }

    fn object(&mut self) -> Result<Value<'a>, Error> {
        let mut members: Vec<(Cow<'a, str>, JsonNode<'a>)> = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.unexpected("a name in double quotes is expected");
            }
            let name = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.unexpected("a colon is expected after a name");
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
                        Some(name) => self.fail(JsonProblem::Repeated(name)),
                        None => Ok(Value::Object(members)),
                    };
                }
                _ => return self.unexpected("a comma or } is expected"),
            }
            self.space();
            self.after_comma(b'}', "trailing comma before }")?;
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        self.at += 1;
        let start = self.at;
        let mut owned: Option<String> = None;
        let mut from = start;
        loop {
            self.at += plain(&self.text.as_bytes()[self.at..]);
            match self.peek() {
                None => return self.fail(JsonProblem::End),
                Some(b'"') => {
                    let rest = &self.text[from..self.at];
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
                    text.push_str(&self.text[from..self.at]);
                    let unescaped = self.escape()?;
                    owned.get_or_insert_default().push(unescaped);
                    from = self.at;
                }
                Some(_) => return self.fail(JsonProblem::Syntax("a control character in a string must be escaped")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        self.at += 1;
        let Some(letter) = self.peek() else { return self.fail(JsonProblem::End) };
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
                        return self.fail(JsonProblem::Surrogate);
                    }
                    self.at += 2;
                    let second = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return self.fail(JsonProblem::Surrogate);
                    }
                    0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                match char::from_u32(code) {
                    Some(letter) => letter,
                    None => return self.fail(JsonProblem::Surrogate),
                }
            }
            _ => {
                self.at -= 1;
                return self.fail(JsonProblem::Syntax("no such escape in a string"));
            }
        })
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            match self.peek().map(|digit| (digit as char).to_digit(16)) {
                Some(Some(digit)) => code = code * 16 + digit,
                _ => return self.unexpected("\\u takes four hexadecimal digits"),
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
            _ => return self.unexpected("a digit is expected"),
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
                return self.fail(JsonProblem::Exponent);
            }
        }
        Ok(Value::Number)
    }

    fn digits(&mut self) -> Result<(), Error> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if start == self.at { self.unexpected("a digit is expected") } else { Ok(()) }
    }
}

// A few names are compared each with each; many are sorted first.
fn repeated(members: &[(Cow<'_, str>, JsonNode<'_>)]) -> Option<String> {
    if members.len() <= COMPARED_MAX {
        let before = |at: usize| members[..at].iter().any(|(name, _)| *name == members[at].0);
        return (1..members.len()).find(|at| before(*at)).map(|at| members[at].0.to_string());
    }
    let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned())
}
