//! Splits an upload into its items while it arrives, without knowing what an item is.
//! Never holds more than one item, and never more of one than an item may have. Called by uploads.

use super::super::items::ITEM_BYTES_MAX;

/// How an upload is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadForm {
    /// One object with the member `items`, which is a list of objects.
    Json,
    /// One object a line.
    Lines,
}

/// Why an upload is not a list of items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoItemList {
    /// How many bytes came before.
    pub at: u64,
    /// The fault, for the sender.
    pub message: String,
}

/// An item as it was sent. One that is too long is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UploadedItem<'a> {
    /// Its JSON text, without the space around it.
    pub bytes: &'a [u8],
    /// Whether nothing is cut off.
    pub is_whole: bool,
}

/// So much of an item that is too long is kept, to show which it was.
const CUT_BYTES: usize = 1 << 10;
/// Some programs write it in front of UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// The longest value of `partner_id` that is kept, in bytes.
const MEMBER_BYTES_MAX: usize = 1 << 10;

/// Reads an upload piece by piece.
pub struct Splitter {
    form: UploadForm,
    state: State,
    at: u64,
    /// The bytes of the value that is being read.
    value: Vec<u8>,
    is_whole: bool,
    nesting: Nesting,
    /// The name of the member that is being read.
    name: Vec<u8>,
    partner: Option<Vec<u8>>,
    had_items: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the object.
    Start,
    /// In front of a member's name, or of the end; `true` where a name must follow.
    Member(bool),
    Name,
    /// Behind a member's name.
    Colon,
    /// In front of a member's value.
    Value,
    /// In a member's value other than the items.
    Other,
    /// Behind a member's value.
    AfterValue,
    /// In front of an item, or of the end of the list; `true` where an item must follow.
    Item(bool),
    InItem,
    AfterItem,
    /// Behind the object.
    End,
    /// In a line.
    Line,
}

/// Where in a JSON value the reader is.
#[derive(Clone, Copy, Default)]
struct Nesting {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    // Whether the value ends with this byte, where it is one of several parts: a list, an object or a text.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return self.depth == 0;
                }
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

impl Splitter {
    /// A reader at the beginning of an upload.
    pub fn new(form: UploadForm) -> Self {
        let state = if form == UploadForm::Json { State::Start } else { State::Line };
        let (value, name) = Default::default();
        Self {
            form,
            state,
            at: 0,
            value,
            is_whole: true,
            nesting: Nesting::default(),
            name,
            partner: None,
            had_items: false,
        }
    }

    /// The JSON text of the member `partner_id`, where there was one.
    pub fn partner(&self) -> Option<&[u8]> {
        self.partner.as_deref()
    }

    /// The next item of `piece`, which is moved on behind it; none where the piece is used up.
    pub fn next<'a>(&'a mut self, piece: &mut &[u8]) -> Result<Option<UploadedItem<'a>>, NoItemList> {
        if self.form == UploadForm::Lines && self.value.last() == Some(&b'\n') {
            self.begin_value();
        }
        while let Some((byte, rest)) = piece.split_first() {
            let ends = match self.form {
                UploadForm::Json => self.json(*byte)?,
                UploadForm::Lines => self.line(*byte),
            };
            self.at += 1;
            *piece = rest;
            if ends {
                return Ok(Some(self.item()));
            }
        }
        Ok(None)
    }

    /// The last item, where it has no end of its own; the upload must be over.
    pub fn end(&mut self) -> Result<Option<UploadedItem<'_>>, NoItemList> {
        match self.form {
            UploadForm::Lines if self.value.last() == Some(&b'\n') || self.value.trim_ascii().is_empty() => Ok(None),
            UploadForm::Lines => Ok(Some(self.item())),
            UploadForm::Json if self.state != State::End => Err(self.malformed("the body ends in the middle of it")),
            UploadForm::Json if !self.had_items => Err(self.malformed("`items` must be a list of objects")),
            UploadForm::Json => Ok(None),
        }
    }

    fn item(&self) -> UploadedItem<'_> {
        let bytes = self.value.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(&self.value);
        UploadedItem { bytes: bytes.trim_ascii(), is_whole: self.is_whole }
    }

    fn begin_value(&mut self) {
        self.value.clear();
        (self.is_whole, self.nesting) = (true, Nesting::default());
    }

    fn keep(&mut self, byte: u8) {
        if self.value.len() < if self.is_whole { ITEM_BYTES_MAX } else { CUT_BYTES } {
            self.value.push(byte);
        } else if self.is_whole {
            self.is_whole = false;
            self.value.truncate(CUT_BYTES);
        }
    }

    // Whether the line ends with this byte and says something.
    fn line(&mut self, byte: u8) -> bool {
        if byte != b'\n' {
            self.keep(byte);
            return false;
        }
        if self.value.trim_ascii().is_empty() {
            self.begin_value();
            return false;
        }
        // The mark that the item is to be given out.
        self.value.push(b'\n');
        true
    }

    // Whether an item ends with this byte.
    fn json(&mut self, byte: u8) -> Result<bool, NoItemList> {
        let blank = byte.is_ascii_whitespace();
        self.state = match (self.state, byte) {
            (State::Name | State::Other | State::InItem, _) => return self.within(byte),
            (state, _) if blank => state,
            (State::Start, b'{') => State::Member(false),
            (State::Start, _) if BYTE_ORDER_MARK.get(self.at as usize) == Some(&byte) => State::Start,
            (State::Member(_), b'"') => {
                self.begin_value();
                self.nesting.ends_with(byte);
                State::Name
            }
            (State::Member(false), b'}') => State::End,
            (State::Colon, b':') => State::Value,
            (State::Value, b'[') if self.name == b"items" && !self.had_items => {
                self.had_items = true;
                State::Item(false)
            }
            (State::Value, _) if self.name == b"items" => {
                return Err(self.malformed("`items` must be one list of objects"));
            }
            (State::Value, _) => {
                self.begin_value();
                self.state = State::Other;
                return self.within(byte);
            }
            (State::AfterValue, b',') => State::Member(true),
            (State::AfterValue, b'}') => State::End,
            (State::Item(_), b'{') => {
                self.begin_value();
                self.state = State::InItem;
                return self.within(byte);
            }
            (State::Item(false), b']') => State::AfterValue,
            (State::Item(_), _) => return Err(self.malformed("`items` must be a list of objects")),
            (State::AfterItem, b',') => State::Item(true),
            (State::AfterItem, b']') => State::AfterValue,
            (State::Start, _) => return Err(self.malformed("the body must be a JSON object with `items`")),
            (State::End, _) => return Err(self.malformed("something follows the JSON object")),
            _ => return Err(self.malformed(&format!("{:?} is out of place", char::from(byte)))),
        };
        Ok(false)
    }

    // Goes on with a value; whether it is an item that ends with this byte.
    fn within(&mut self, byte: u8) -> Result<bool, NoItemList> {
        let nests = self.nesting.depth > 0 || self.nesting.in_string || matches!(byte, b'"' | b'{' | b'[');
        if !nests {
            // A number or a word ends in front of what follows it.
            if byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']') {
                self.end_member();
                self.state = State::AfterValue;
                return self.json(byte);
            }
            self.keep_member(byte);
            return Ok(false);
        }
        let ends = self.nesting.ends_with(byte);
        match self.state {
            State::InItem => {
                self.keep(byte);
                if ends {
                    self.state = State::AfterItem;
                }
                return Ok(ends);
            }
            State::Name if ends => {
                self.name = std::mem::take(&mut self.value);
                self.state = State::Colon;
            }
            State::Name => self.keep_member(byte),
            _ => {
                self.keep_member(byte);
                if ends {
                    self.end_member();
                    self.state = State::AfterValue;
                }
            }
        }
        Ok(false)
    }

    fn keep_member(&mut self, byte: u8) {
        if self.value.len() < MEMBER_BYTES_MAX {
            self.value.push(byte);
        }
    }

    fn end_member(&mut self) {
        if self.name == b"partner_id" {
            self.partner = Some(std::mem::take(&mut self.value));
        }
    }

    fn malformed(&self, message: &str) -> NoItemList {
        NoItemList { at: self.at, message: message.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The items of an upload that arrives in pieces of a size.
    fn split(form: UploadForm, whole: &str, size: usize) -> Result<Vec<(String, bool)>, NoItemList> {
        let mut splitter = Splitter::new(form);
        let mut items = Vec::new();
        let mut add = |item: UploadedItem<'_>| {
            items.push((String::from_utf8_lossy(item.bytes).into_owned(), item.is_whole));
        };
        for mut piece in whole.as_bytes().chunks(size) {
            while let Some(item) = splitter.next(&mut piece)? {
                add(item);
            }
        }
        if let Some(item) = splitter.end()? {
            add(item);
        }
        Ok(items)
    }

    fn whole(items: &[&str]) -> Result<Vec<(String, bool)>, NoItemList> {
        Ok(items.iter().map(|item| ((*item).to_owned(), true)).collect())
    }

    #[test]
    fn items_of_a_json_body_are_split_wherever_it_is_cut() {
        let body = r#" { "note" : "a \" ]}" , "n": -1.5e3,"deep":{"items":[1,[2]]}, "items" : [ {"a":"}\\\"]"} ,{"b":[{}]},{}] , "t":true } "#;
        let items = whole(&[r#"{"a":"}\\\"]"}"#, r#"{"b":[{}]}"#, "{}"]);
        for size in 1..=body.len() {
            assert_eq!(split(UploadForm::Json, body, size), items, "{size}");
        }
        for empty in [r#"{"items":[]}"#, r#"{"items":[ ],"x":1}"#] {
            assert_eq!(split(UploadForm::Json, empty, 3), Ok(Vec::new()), "{empty}");
        }
    }

    #[test]
    fn byte_order_mark_in_front_is_passed_over() {
        assert_eq!(split(UploadForm::Lines, "\u{feff}{\"a\":1}\n{}", 1), whole(&["{\"a\":1}", "{}"]));
        assert_eq!(split(UploadForm::Json, "\u{feff}{\"items\":[{}]}", 1), whole(&["{}"]));
    }

    #[test]
    fn lines_are_split_wherever_they_are_cut_and_empty_ones_do_not_count() {
        let body = "{\"a\":1}\r\n\n  \n{\"b\":2}\nno json\n {\"c\":3}";
        let items = whole(&["{\"a\":1}", "{\"b\":2}", "no json", "{\"c\":3}"]);
        for size in 1..=body.len() {
            assert_eq!(split(UploadForm::Lines, body, size), items, "{size}");
        }
        assert_eq!(split(UploadForm::Lines, "\n\n", 1), Ok(Vec::new()));
        assert_eq!(split(UploadForm::Lines, "{}\n", 1), whole(&["{}"]));
    }

    #[test]
    fn body_that_is_no_list_of_objects_is_refused_where_it_goes_wrong() {
        for (body, at) in [
            ("", 0),
            ("[]", 0),
            ("{}", 2),
            (r#"{"items":1}"#, 9),
            (r#"{"items":[1]}"#, 10),
            (r#"{"items":[{},]}"#, 13),
            (r#"{"items":[{}"#, 12),
            (r#"{"items":[{}]} x"#, 15),
            (r#"{"items":[],"items":[]}"#, 20),
            (r#"{"a" 1}"#, 5),
            (r#"{"a":1,}"#, 7),
        ] {
            for size in [1, 100] {
                let wrong = split(UploadForm::Json, body, size).map_err(|malformed| malformed.at);
                assert_eq!(wrong, Err(at), "{body} in pieces of {size}");
            }
        }
    }

    #[test]
    fn item_that_is_too_long_is_cut_off_and_those_behind_it_are_whole() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(ITEM_BYTES_MAX));
        for (form, body) in [
            (UploadForm::Json, format!("{{\"items\":[{long},{{\"b\":1}}]}}")),
            (UploadForm::Lines, format!("{long}\n{{\"b\":1}}\n")),
        ] {
            let items = split(form, &body, 10_000).expect("a list");
            assert_eq!(items, [(long[..CUT_BYTES].to_owned(), false), ("{\"b\":1}".to_owned(), true)], "{form:?}");
        }
        let longest = "x".repeat(ITEM_BYTES_MAX);
        assert_eq!(split(UploadForm::Lines, &format!("{longest}\n"), 9_999), whole(&[&longest]));
    }

    #[test]
    fn the_partner_that_a_body_names_is_kept() {
        let mut splitter = Splitter::new(UploadForm::Json);
        let mut piece = &br#"{"items":[],"partner_id":"acme"}"#[..];
        assert_eq!(splitter.next(&mut piece), Ok(None));
        assert_eq!(splitter.partner(), Some(&b"\"acme\""[..]));
    }
}
