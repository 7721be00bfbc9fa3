//! A match over a kind of row, a record, a command or a reply names every one: whoever adds one is led by the compiler to each
//! place that must know of it.

use std::collections::BTreeSet;

use syn::{
    Arm, ExprMatch, Item, Pat, Path,
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

struct Matches<'a> {
    variants: &'a BTreeSet<(String, String)>,
    found: Vec<String>,
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
        let takes_the_rest = |arm: &Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
        let mut named = Named { variants: self.variants, variant: None };
        for arm in &found.arms {
            named.visit_pat(&arm.pat);
        }
        if let Some(variant) = named.variant
            && found.arms.iter().any(takes_the_rest)
        {
            self.found.push(variant);
        }
        visit::visit_expr_match(self, found);
    }
}

fn wildcards(source: &str, variants: &BTreeSet<(String, String)>) -> Vec<String> {
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
        found.extend(wildcards(&read(&path), &variants).into_iter().map(|variant| format!("{path}: {variant}")));
    }
    assert!(found.is_empty(), "name every variant instead of `_ =>`:\n{}", found.join("\n"));
}

#[test]
fn wildcard_arm_is_found_however_deep_the_variant_lies() {
    let variants = BTreeSet::from([("Reply".to_owned(), "New".to_owned())]);
    let one = |arms: &str| wildcards(&format!("fn f() {{ match x {{ {arms} }} }}"), &variants).len();
    assert_eq!(one("Some(Reply::Fence(fence::Reply::New(_))) => 1, _ => 2"), 1);
    assert_eq!(one("Reply::New(_) => 1, Reply::Old => 2"), 0);
    assert_eq!(one("Reply::New(_) => 1, _ if y => 2"), 0, "the compiler still asks for the others");
    assert_eq!(one("Other::New(_) => 1, _ => 2"), 0);
}
