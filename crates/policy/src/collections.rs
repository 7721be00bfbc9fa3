//! Collections of items that partners send: for each its schema, its references and the order of its versions, as data.
//! Never looks a reference up: whether the named item is there is for the decision on the item.
//! Called by `Policy::load`; read by ingest for every item.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

mod faults;
mod order;
mod read;
mod schema;

pub use faults::Fault;
pub(super) use order::{Cycle, load_order};
pub(super) use read::{ParsedCollection, read};
pub(super) use schema::{subschemas, to_json};

/// The step of the path before a collection's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    Master,
    Documents,
    Inventory,
}

impl Group {
    const WORDS: [(&str, Self); 3] =
        [("master", Self::Master), ("documents", Self::Documents), ("inventory", Self::Inventory)];

    /// The word in the path.
    pub fn name(self) -> &'static str {
        name_of(&Self::WORDS, self)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        value_of(&Self::WORDS, name)
    }
}

/// How the versions of one item are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionOrder {
    /// As each pair of versions suggests: whole numbers, times, or versions like `1.2.3`.
    Any,
    Integer,
    /// ISO 8601 times.
    Time,
    Semver,
    /// Texts, by their bytes.
    Text,
}

impl VersionOrder {
    const WORDS: [(&str, Self); 5] = [
        ("any", Self::Any),
        ("integer", Self::Integer),
        ("time", Self::Time),
        ("semver", Self::Semver),
        ("text", Self::Text),
    ];

    /// The word in a policy.
    pub fn name(self) -> &'static str {
        name_of(&Self::WORDS, self)
    }
}

/// Why an item waits for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    MissingDependency,
    UnresolvedParent,
    UnresolvedReference,
    BusinessRule,
}

impl Reason {
    /// The words on the wire.
    pub const WORDS: [(&str, Self); 4] = [
        ("MISSING_DEPENDENCY", Self::MissingDependency),
        ("UNRESOLVED_PARENT", Self::UnresolvedParent),
        ("UNRESOLVED_REFERENCE", Self::UnresolvedReference),
        ("BUSINESS_RULE", Self::BusinessRule),
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        name_of(&Self::WORDS, self)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        value_of(&Self::WORDS, name)
    }
}

fn name_of<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    let found = words.iter().find(|(_, other)| *other == value);
    found.map(|(word, _)| *word).expect("every value of the enum has its word in its table")
}

fn value_of<T: Copy>(words: &[(&'static str, T)], name: &str) -> Option<T> {
    words.iter().find(|(word, _)| *word == name).map(|(_, value)| *value)
}

/// A place in an item that names another item by its source id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// A JSON pointer in which `*` is each element of a list.
    pub at: String,
    /// The collection of the other item.
    pub to: Arc<str>,
    /// The reason code of an item whose reference is not there.
    pub reason: Reason,
    steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Each,
    /// A field of an object, or the index of an element.
    Name(String),
}

impl Reference {
    /// `None` where `at` is not a pointer with at least one step, each with a name.
    pub fn new(at: &str, to: &str, reason: Reason) -> Option<Self> {
        let names = at.strip_prefix('/').filter(|_| super::routes::is_pointer(at))?.split('/');
        let step = |name: &str| match name {
            "" => None,
            "*" => Some(Step::Each),
            name => Some(Step::Name(name.replace("~1", "/").replace("~0", "~"))),
        };
        let steps = names.map(step).collect::<Option<_>>()?;
        Some(Self { at: at.to_owned(), to: to.into(), reason, steps })
    }
}

// `indexes` are those of the lists that the `*` steps before this one went into.
fn follow<'v>(value: &'v Value, steps: &[Step], indexes: &mut Vec<usize>, found: &mut impl FnMut(&'v str, &[usize])) {
    match (steps.split_first(), value) {
        (None, Value::String(text)) => found(text, indexes),
        (Some((Step::Each, rest)), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                indexes.push(index);
                follow(item, rest, indexes, found);
                indexes.pop();
            }
        }
        (Some((Step::Name(name), rest)), Value::Object(fields)) => {
            if let Some(field) = fields.get(name) {
                follow(field, rest, indexes, found);
            }
        }
        (Some((Step::Name(index), rest)), Value::Array(items)) => {
            if let Some(item) = index.parse::<usize>().ok().and_then(|index| items.get(index)) {
                follow(item, rest, indexes, found);
            }
        }
        _ => {}
    }
}

/// One kind of item that partners send.
pub struct Collection {
    /// Its name in the path.
    pub name: Arc<str>,
    pub group: Group,
    pub order: VersionOrder,
    pub references: Vec<Reference>,
    /// The JSON Schema of an item, draft 2020-12.
    pub schema: Value,
    /// The schema as it is compiled.
    validator: jsonschema::Validator,
}

impl Collection {
    /// Everything that keeps an item from fitting the schema, cut at `limit` faults; never cut to none. Empty where the
    /// item fits.
    pub fn faults(&self, item: &Value, limit: usize) -> Vec<Fault> {
        // Nearly every item fits, and this answer allocates nothing.
        if self.validator.is_valid(item) {
            return Vec::new();
        }
        self.validator.iter_errors(item).take(limit.max(1)).map(|error| Fault::of(&error)).collect()
    }

    /// Every reference that an item makes, with the source id that it names: in the order of the contract, then of the
    /// item. Null and absent values are left out; so are values that are no text, since the schema judges those.
    pub fn references_of<'v>(&self, item: &'v Value) -> Vec<(&Reference, &'v str)> {
        let mut found = Vec::new();
        for reference in &self.references {
            follow(item, &reference.steps, &mut Vec::new(), &mut |source_id, _| found.push((reference, source_id)));
        }
        found
    }

    /// The JSON pointer to one of [`Collection::references_of`], by its position there.
    pub fn pointer_to_reference(&self, item: &Value, position: usize) -> String {
        let (mut pointer, mut passed) = (String::new(), 0);
        for reference in &self.references {
            follow(item, &reference.steps, &mut Vec::new(), &mut |_, indexes| {
                if passed == position {
                    pointer = with_indexes(&reference.at, indexes);
                }
                passed += 1;
            });
        }
        pointer
    }
}

// A pointer with the index of each list in place of its `*`.
fn with_indexes(at: &str, indexes: &[usize]) -> String {
    let mut indexes = indexes.iter().map(usize::to_string);
    let steps = at.split('/').map(|step| match step {
        "*" => indexes.next().unwrap_or_default(),
        step => step.to_owned(),
    });
    steps.collect::<Vec<_>>().join("/")
}

// The validator is made from the schema, so it is left out of both.
impl PartialEq for Collection {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, group, order, references, schema, validator: _ } = self;
        (name, group, order, references, schema)
            == (&other.name, &other.group, &other.order, &other.references, &other.schema)
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collection({}/{})", self.group.name(), self.name)
    }
}

/// Every collection of a policy.
#[derive(Default, PartialEq, Debug)]
pub struct Collections {
    ordered: Vec<Arc<Collection>>,
    by_name: BTreeMap<Arc<str>, usize>,
}

impl Collections {
    pub fn get(&self, name: &str) -> Option<&Arc<Collection>> {
        self.by_name.get(name).map(|index| &self.ordered[*index])
    }

    /// In load order: a collection comes after those that it refers to.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Collection>> {
        self.ordered.iter()
    }

    /// Those that could be read whole. A policy with one that could not be is never served.
    pub(super) fn of(parsed: Vec<ParsedCollection<'_>>) -> Self {
        let (order, _) = load_order(&parsed);
        let mut read: Vec<Option<Arc<Collection>>> =
            parsed.into_iter().map(|parsed| parsed.collection().map(Arc::new)).collect();
        let ordered: Vec<Arc<Collection>> = order.into_iter().filter_map(|index| read[index].take()).collect();
        let by_name =
            ordered.iter().zip(0..).map(|(collection, index)| (Arc::clone(&collection.name), index)).collect();
        Self { ordered, by_name }
    }
}
