//! Explains a conflict: an RFC 6902 patch from the first body to the second.
//! Never reads unmasked bodies, so a masked value cannot leak into an answer.
//! Called where an answer is written, never inside a decision.

use std::collections::BTreeMap;

use crate::{
    fence::Mismatch,
    json::{self, JsonNode, Value},
};

/// The largest number of operations; a longer diff is cut off.
pub const OPERATIONS_MAX: usize = 100;
/// The largest patch in bytes, after its first operation: each operation repeats a path, and names may be very long.
pub const PATCH_BYTES_MAX: usize = 128 << 10;

/// The difference between two bodies, as far as it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// The text of an RFC 6902 array; none where a body was not JSON or too large to keep.
    pub patch: Option<String>,
    /// Whether [`OPERATIONS_MAX`] or [`PATCH_BYTES_MAX`] cut the patch off.
    pub truncated: bool,
    /// The number of operations in the patch.
    pub operations: usize,
}

/// Computes the difference between the two bodies of a conflict.
pub fn between(mismatch: &Mismatch, mask: &[String]) -> Diff {
    let (Some(first), Some(second)) = (&mismatch.first.kept, &mismatch.second.kept) else {
        return Diff { patch: None, truncated: false, operations: 0 };
    };
    let (Some(first), Some(second)) = (masked(first, mask), masked(second, mask)) else {
        return Diff { patch: None, truncated: false, operations: 0 };
    };
    let (Ok(first), Ok(second)) = (json::parse(&first), json::parse(&second)) else {
        return Diff { patch: None, truncated: false, operations: 0 };
    };
    let mut patch = Patch { out: vec![b'['], count: 0, truncated: false };
    patch.compare(&mut String::new(), &first, &second);
    if patch.count == 0 {
        // The bodies differ only in masked values: name the places, never the values.
        let masks: Vec<&str> = mask.iter().map(String::as_str).collect();
        patch.places(&mut String::new(), &first, &masks);
    }
    patch.out.push(b']');
    Diff { patch: String::from_utf8(patch.out).ok(), truncated: patch.truncated, operations: patch.count }
}

// Masked again: the policy may mask more than when the first body was kept.
fn masked(kept: &[u8], mask: &[String]) -> Option<Vec<u8>> {
    json::parse(kept).ok().map(|node| json::canonical_masked(&node, mask))
}

struct Patch {
    out: Vec<u8>,
    count: usize,
    truncated: bool,
}

impl Patch {
    fn op(&mut self, op: &str, path: &str, value: Option<&[u8]>) {
        let bytes = self.out.len() + path.len() + value.map_or(0, <[u8]>::len);
        if self.count == OPERATIONS_MAX || self.count > 0 && bytes > PATCH_BYTES_MAX {
            self.truncated = true;
            return;
        }
        if self.count > 0 {
            self.out.push(b',');
        }
        self.count += 1;
        self.out.extend_from_slice(format!("{{\"op\":\"{op}\",\"path\":").as_bytes());
        json::write_string(&mut self.out, path);
        if let Some(value) = value {
            self.out.extend_from_slice(b",\"value\":");
            self.out.extend_from_slice(value);
        }
        self.out.push(b'}');
    }

    fn compare(&mut self, path: &mut String, first: &JsonNode<'_>, second: &JsonNode<'_>) {
        // Kept bodies are canonical: equal text means equal values.
        if self.truncated || first.raw == second.raw {
            return;
        }
        match (&first.value, &second.value) {
            (Value::Object(_), Value::Object(_)) => self.objects(path, first, second),
            (Value::Array(a), Value::Array(b)) => self.arrays(path, a, b),
            _ => self.op("replace", path, Some(second.raw.as_bytes())),
        }
    }

    // Indexed, not searched: a body may have very many names, and the cost must not grow with their square.
    fn objects(&mut self, path: &mut String, first: &JsonNode<'_>, second: &JsonNode<'_>) {
        let (before, after) = (index(first), index(second));
        for (name, node) in first.members() {
            let length = descend(path, name);
            match after.get(&**name) {
                Some(other) => self.compare(path, node, other),
                None => self.op("remove", path, None),
            }
            path.truncate(length);
        }
        for (name, node) in second.members() {
            if !before.contains_key(&**name) {
                let length = descend(path, name);
                self.op("add", path, Some(node.raw.as_bytes()));
                path.truncate(length);
            }
        }
    }

    // Equal elements at both ends are skipped, so an insertion is one operation and does not rewrite the tail.
    fn arrays(&mut self, path: &mut String, a: &[JsonNode<'_>], b: &[JsonNode<'_>]) {
        let same = |(x, y): &(&JsonNode<'_>, &JsonNode<'_>)| x.raw == y.raw;
        let start = a.iter().zip(b).take_while(same).count();
        let end = a[start..].iter().rev().zip(b[start..].iter().rev()).take_while(same).count();
        let (a, b) = (&a[start..a.len() - end], &b[start..b.len() - end]);
        let shared = a.len().min(b.len());
        for (index, (before, after)) in a.iter().zip(b).enumerate() {
            let length = descend(path, &(start + index).to_string());
            self.compare(path, before, after);
            path.truncate(length);
        }
        for index in (shared..a.len()).rev() {
            let length = descend(path, &(start + index).to_string());
            self.op("remove", path, None);
            path.truncate(length);
        }
        for (index, after) in b.iter().enumerate().skip(shared) {
            let length = descend(path, &(start + index).to_string());
            self.op("add", path, Some(after.raw.as_bytes()));
            path.truncate(length);
        }
    }

    // Adds an operation for every place that a mask hides.
    fn places(&mut self, path: &mut String, node: &JsonNode<'_>, masks: &[&str]) {
        if self.truncated || masks.is_empty() {
            return;
        }
        if masks.contains(&"") {
            return self.op("replace", path, Some(json::MASKED));
        }
        let mut below = |name: &str, node: &JsonNode<'_>| {
            let length = descend(path, name);
            self.places(path, node, &json::step(masks, name));
            path.truncate(length);
        };
        match &node.value {
            Value::Object(members) => members.iter().for_each(|(name, node)| below(name, node)),
            Value::Array(items) => items.iter().enumerate().for_each(|(at, node)| below(&at.to_string(), node)),
            _ => {}
        }
    }
}

fn index<'n, 'a>(object: &'n JsonNode<'a>) -> BTreeMap<&'n str, &'n JsonNode<'a>> {
    object.members().iter().map(|(name, node)| (&**name, node)).collect()
}

// Returns the length to truncate back to.
fn descend(path: &mut String, name: &str) -> usize {
    let length = path.len();
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
    length
}
