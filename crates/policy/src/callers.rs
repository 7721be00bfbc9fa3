//! Reads which callers a gateway rule admits (`roles`, `tenants`), and which user a stored answer is for (`principal`).
//! Never authenticates a caller: these are plain values.
//! Called by `routes` for each rule, and by the gateway before it reads a body and where it compares a retry.

use super::identity::{Identity, Role};
use super::read::{Fields, Reader};
use super::routes::is_pointer;
use super::yaml::{Mark, YamlNode};

/// The names of these fields in a rule.
pub const FIELDS: [&str; 3] = ["roles", "tenants", "principal"];

/// Roles that have keys of their own, and so can write through the gateway.
const ROLES: [(&str, Role); 3] = [("partner", Role::Partner), ("planner", Role::Planner), ("executor", Role::Executor)];

/// Where a request names the user behind the tenant. The tenant's front end sets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Principal {
    /// `header:NAME`: the header's whole value.
    Header(String),
    /// `jwt:NAME/claim`: a claim of the JSON Web Token in that header. The token's signature is not verified.
    Token {
        /// The header, with or without `Bearer` before the token.
        header: String,
        /// A JSON pointer into the token's claims.
        claim: String,
    },
}

impl Principal {
    /// The header that it is read from.
    pub fn header(&self) -> &str {
        match self {
            Self::Header(header) | Self::Token { header, .. } => header,
        }
    }
}

/// The callers that may write through a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callers {
    /// A caller needs one of these.
    pub roles: Vec<Role>,
    /// The tenants that may write; `None` admits all.
    pub tenants: Option<Vec<String>>,
    /// Where the users of one tenant are told apart.
    pub principal: Option<Principal>,
    /// The place of the first of the three in the file.
    pub mark: Option<Mark>,
    /// The place of `principal` in the file.
    pub principal_mark: Option<Mark>,
}

impl Default for Callers {
    fn default() -> Self {
        Self { roles: vec![Role::Partner], tenants: None, principal: None, mark: None, principal_mark: None }
    }
}

impl Callers {
    /// Whether this identity may write through the rule, or why not.
    pub fn admit(&self, caller: &Identity) -> Result<(), String> {
        if !self.roles.iter().any(|role| caller.has(*role)) {
            let names: Vec<_> = self.roles.iter().map(|role| role.name()).collect();
            return Err(format!("this rule needs the role {}", names.join(" or ")));
        }
        match &self.tenants {
            Some(tenants) if !tenants.contains(&caller.id) => {
                Err(format!("this rule is not for the tenant {}", caller.id))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the three fields of a rule.
pub fn read(reader: &mut Reader, fields: &Fields<'_>) -> Callers {
    let first = FIELDS.iter().find(|name| fields.get(name).is_some());
    let mark = first.map(|name| fields.mark_of(name).clone());
    let principal_mark = fields.get("principal").map(|_| fields.mark_of("principal").clone());
    let mut callers = Callers { mark, principal_mark, ..Callers::default() };
    if let Some(node) = fields.get("roles") {
        let items = reader.items(node, "`roles`").unwrap_or_default();
        callers.roles = items.iter().filter_map(|item| reader.word(item, "each of `roles`", &ROLES)).collect();
        some(reader, node, "roles", items.is_empty());
    }
    if let Some(node) = fields.get("tenants") {
        callers.tenants = reader.texts(node, "`tenants`");
        some(reader, node, "tenants", callers.tenants.as_ref().is_some_and(Vec::is_empty));
    }
    callers.principal = fields.get("principal").and_then(|node| {
        let parsed = principal(&reader.text(node, "`principal`")?);
        reader.accept(node, "`principal`", parsed, "write header:NAME or jwt:NAME/claim, such as jwt:X-User-Token/sub")
    });
    callers
}

fn some(reader: &mut Reader, node: &YamlNode, name: &str, is_empty: bool) {
    if is_empty {
        let message = format!("`{name}` is empty: every write would be refused");
        reader.error(&node.mark, "no-caller", message, "name one, or remove the line");
    }
}

fn principal(text: &str) -> Result<Principal, String> {
    let wrong = || format!("`{text}` names no place for a user");
    let (kind, place) = text.split_once(':').ok_or_else(wrong)?;
    // A header's name has no slash.
    let at = place.find('/').unwrap_or(place.len());
    let (header, claim) = place.split_at(at);
    if http::HeaderName::try_from(header).is_err() {
        return Err(format!("`{header}` cannot be a header's name"));
    }
    if header.contains('_') {
        return Err(format!("`{header}` has a `_`, and is not passed on"));
    }
    match kind {
        "header" if claim.is_empty() => Ok(Principal::Header(header.into())),
        "jwt" if !claim.is_empty() && is_pointer(claim) => {
            Ok(Principal::Token { header: header.into(), claim: claim.into() })
        }
        _ => Err(wrong()),
    }
}
