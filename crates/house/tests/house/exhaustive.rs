//! A match over a kind of row, a record, a command or a reply names every one: whoever adds one is led by the compiler to each
//! place that must know of it.

use std::collections::BTreeSet;

use syn::{
    Arm, Block, Expr, ExprMatch, Item, Macro, Pat, Path, Stmt, Token, braced, bracketed,
    buffer::Cursor,
    parenthesized,
    parse::{Parse, ParseStream, Parser},
    punctuated::Punctuated,
    token,
    visit::{self, Visit},
};

use super::repo::{files, read};

/// The enums of the kernel that grow with every capability.
const GROWING: [&str; 4] = ["Kind", "Record", "Command", "Reply"];

/// The variants of those enums, wherever the kernel declares one.
fn variants() -> BTreeSet<(String, String)> {
    let sources = files("crates/kernel/src").into_iter().filter(|path| path.ends_with(".rs"));
    let mut found = BTreeSet::new();
    for source in sources {
        for item in syn::parse_file(&read(&source)).unwrap().items {
            let Item::Enum(declared) = item else { continue };
            let name = declared.ident.to_string();
            if GROWING.contains(&name.as_str()) {
                found.extend(declared.variants.iter().map(|variant| (name.clone(), variant.ident.to_string())));
            }
        }
    }
    found
}

/// How an arm takes every variant that no arm before it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TakesTheRest {
    /// `_ =>`
    Wildcard,
    /// `other =>`
    Binding,
}

impl TakesTheRest {
    fn of(arm: &Arm) -> Option<Self> {
        match &arm.pat {
            _ if arm.guard.is_some() => None,
            Pat::Wild(_) => Some(Self::Wildcard),
            // `None =>` is a name, too.
            Pat::Ident(name) if name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase) => {
                Some(Self::Binding)
            }
            _ => None,
        }
    }
}

struct Matches<'a> {
    variants: &'a BTreeSet<(String, String)>,
    found: Vec<(String, TakesTheRest)>,
}

/// Looks for the variants in one pattern.
struct Named<'a> {
    variants: &'a BTreeSet<(String, String)>,
    variant: Option<String>,
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [.., of, variant] = &names[..]
            && self.variants.contains(&(of.clone(), variant.clone()))
        {
            self.variant = Some(format!("{of}::{variant}"));
        }
        visit::visit_path(self, path);
    }
}

impl<'ast> Visit<'ast> for Matches<'_> {
    fn visit_expr_match(&mut self, found: &'ast ExprMatch) {
        let mut named = Named { variants: self.variants, variant: None };
        for arm in &found.arms {
            named.visit_pat(&arm.pat);
        }
        if let Some(variant) = named.variant
            && let Some(how) = found.arms.iter().find_map(TakesTheRest::of)
        {
            self.found.push((variant, how));
        }
        visit::visit_expr_match(self, found);
    }

    // The code between a macro's parentheses is only tokens: what can be read as expressions or statements is looked at.
    fn visit_macro(&mut self, found: &'ast Macro) {
        if let Ok(code) = Code::parse.parse2(found.tokens.clone()) {
            let mut inner = Matches { variants: self.variants, found: Vec::new() };
            code.0.iter().for_each(|statement| inner.visit_stmt(statement));
            self.found.append(&mut inner.found);
        }
        visit::visit_macro(self, found);
    }
}

/// The statements among the tokens of a macro, however deep they lie.
struct Code(Vec<Stmt>);

impl Parse for Code {
    fn parse(tokens: ParseStream<'_>) -> syn::Result<Self> {
        let fork = tokens.fork();
        if let Ok(expressions) = Punctuated::<Expr, Token![,]>::parse_terminated(&fork)
            && fork.is_empty()
        {
            tokens.step(|cursor| Ok(((), end(*cursor))))?;
            return Ok(Self(expressions.into_iter().map(|expression| Stmt::Expr(expression, None)).collect()));
        }
        let fork = tokens.fork();
        if let Ok(statements) = Block::parse_within(&fork)
            && fork.is_empty()
        {
            tokens.step(|cursor| Ok(((), end(*cursor))))?;
            return Ok(Self(statements));
        }
        let mut found = Vec::new();
        while !tokens.is_empty() {
            let inside;
            if tokens.peek(token::Brace) {
                braced!(inside in tokens);
            } else if tokens.peek(token::Paren) {
                parenthesized!(inside in tokens);
            } else if tokens.peek(token::Bracket) {
                bracketed!(inside in tokens);
            } else {
                tokens.step(|cursor| {
                    let (_, rest) = cursor.token_tree().ok_or_else(|| cursor.error("no token"))?;
                    Ok(((), rest))
                })?;
                continue;
            }
            found.extend(inside.call(Self::parse)?.0);
        }
        Ok(Self(found))
    }
}

// The place behind the last token.
fn end(mut cursor: Cursor<'_>) -> Cursor<'_> {
    while let Some((_, rest)) = cursor.token_tree() {
        cursor = rest;
    }
    cursor
}

fn wildcards(source: &str, variants: &BTreeSet<(String, String)>) -> Vec<(String, TakesTheRest)> {
    let mut matches = Matches { variants, found: Vec::new() };
    matches.visit_file(&syn::parse_file(source).unwrap());
    matches.found
}

#[test]
fn no_match_over_a_kind_record_command_or_reply_has_a_wildcard_arm() {
    let variants = variants();
    assert!(variants.len() > 40, "the enums of the kernel were found: {variants:?}");
    let sources = files("crates").into_iter().filter(|path| path.contains("/src/"));
    let mut found = Vec::new();
    for path in sources.filter(|path| path.ends_with(".rs")) {
        let here = wildcards(&read(&path), &variants).into_iter();
        // The simulator writes down whatever is answered, and judges it elsewhere.
        let here = here.filter(|(_, how)| *how == TakesTheRest::Wildcard || !path.starts_with("crates/sim/"));
        found.extend(here.map(|(variant, how)| format!("{path}: {variant}, {how:?}")));
    }
    let rule = "name every variant instead of `_ =>` or `other =>`, or ask for the one with `if let`";
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn wildcard_arm_is_found_however_deep_the_variant_lies() {
    let variants = BTreeSet::from([("Reply".to_owned(), "New".to_owned())]);
    let one = |arms: &str| wildcards(&format!("fn f() {{ match x {{ {arms} }} }}"), &variants).len();
    assert_eq!(one("Some(Reply::Fence(fence::Reply::New(_))) => 1, _ => 2"), 1);
    assert_eq!(one("Reply::New(_) => 1, Reply::Old => 2"), 0);
    assert_eq!(one("Reply::New(_) => 1, _ if y => 2"), 0, "the compiler still asks for the others");
    assert_eq!(one("Other::New(_) => 1, _ => 2"), 0);
    assert_eq!(one("Reply::New(_) => 1, other => 2"), 1);
    assert_eq!(one("Some(Reply::New(_)) => 1, None => 2"), 0);
    let in_macro = |body: &str| wildcards(body, &variants).len();
    assert_eq!(in_macro("proptest! { #[test] fn f(x in any()) { match x { Reply::New(_) => 1, _ => 2 }; } }"), 1);
    assert_eq!(in_macro("fn f() { assert!(g(match x { Reply::New(_) => 1, _ => 2 }), \"no\"); }"), 1);
    assert_eq!(in_macro("fn f() { select! { y = x => { match y { Reply::New(_) => 1, _ => 2 } } } }"), 1);
}
