//! The decoded query string, and the parts that every list shares: `limit`, a cursor, and the shape of a page.
//! Never fails on an unknown name. Called by the routes.

use super::{
    call::Call,
    reply::{Answer, Object},
};
use crate::problem::{Code, Problem};

/// How many items a page may have.
pub(super) const LIMIT_MAX: usize = 1_000;
/// How many items a page has where the caller names no `limit`.
pub(super) const LIMIT_DEFAULT: usize = 100;

/// The decoded query string. Unknown names are ignored.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(call: &Call) -> Result<Self, Problem> {
        call.query().map(Self)
    }

    /// The value of a name; none where it is absent.
    pub(super) fn given(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(malformed(format!("`{name}` is repeated"))),
        }
    }

    /// The value of a name; none where it is absent or empty.
    pub(super) fn one(&self, name: &str) -> Result<Option<&str>, Problem> {
        Ok(self.given(name)?.filter(|value| !value.is_empty()))
    }

    /// The value of either of two names for the same thing; refused where both are given and differ.
    pub(super) fn either(&self, name: &str, other: &str) -> Result<Option<&str>, Problem> {
        match (self.one(name)?, self.one(other)?) {
            (Some(one), Some(another)) if one != another => Err(malformed(format!("`{name}` and `{other}` differ"))),
            (one, another) => Ok(one.or(another)),
        }
    }

    /// The planner that the caller names: as `planner_id`, or as `tenant`, which is the name in all other routes.
    pub(super) fn planner(&self) -> Result<Option<&str>, Problem> {
        self.either("planner_id", "tenant")
    }

    pub(super) fn number(&self, name: &str, min: usize, max: usize, default: usize) -> Result<usize, Problem> {
        let Some(text) = self.one(name)? else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| malformed(format!("`{name}` must be from {min} to {max}")))
    }

    /// How many items the caller wants at most.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        self.number("limit", 1, LIMIT_MAX, LIMIT_DEFAULT)
    }

    /// The end of the page before, from `after` or `since`, parsed by `place`; none for the first page.
    pub(super) fn cursor<T>(&self, place: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Problem> {
        let cursor = self.either("after", "since")?;
        cursor.map(|cursor| place(cursor).ok_or_else(unknown_cursor)).transpose()
    }
}

/// The refusal of a cursor that this list did not give out.
pub(super) fn unknown_cursor() -> Problem {
    Problem::new(Code::UnknownCursor, "the cursor must be a `next_cursor` of this list")
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Malformed, detail)
}

/// A page of a list. The last one has an empty cursor.
pub(super) fn page<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>, next_cursor: Option<String>) -> Answer {
    Answer::ok(paged(Object::new(), items, next_cursor).end())
}

/// Adds a page to an object that has further members.
pub(super) fn paged<T: AsRef<[u8]>>(
    object: Object,
    items: impl IntoIterator<Item = T>,
    next_cursor: Option<String>,
) -> Object {
    object.raw("items", &array(items)).text("next_cursor", &next_cursor.unwrap_or_default())
}

/// A JSON array of items that are JSON already.
pub(super) fn array<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut out = b"[".to_vec();
    for item in items {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(item.as_ref());
    }
    out.push(b']');
    out
}

/// One page of a list that is whole in memory and sorted by `name`, and the cursor of the next page.
pub(super) fn window<T>(
    items: Vec<T>,
    name: impl Fn(&T) -> &str,
    after: Option<&str>,
    limit: usize,
) -> (Vec<T>, Option<String>) {
    let mut left = items.into_iter().filter(|item| after.is_none_or(|after| name(item) > after));
    let page: Vec<T> = left.by_ref().take(limit).collect();
    let more = left.next().is_some();
    let next = page.last().filter(|_| more).map(|last| name(last).to_owned());
    (page, next)
}
