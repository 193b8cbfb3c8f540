//! Whether users can have each type that they have to pass: by a constructor, or from a function.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{FnArg, ReturnType, Signature, Visibility};

/// What users make, get and have to pass, by the names of types.
#[derive(Default)]
pub(super) struct Made {
    /// With a constructor.
    made: BTreeSet<String>,
    /// Returned by a function, or passed to a method that users implement.
    got: BTreeSet<String>,
    /// Passed to a function, or returned by a method that users implement.
    passed: BTreeSet<String>,
    /// The types of the public fields.
    fields: BTreeMap<String, BTreeSet<String>>,
}

/// The names in a type.
#[derive(Default)]
struct Names(BTreeSet<String>);

// === impl Made ===

impl Made {
    /// The structs of `open` that users have to pass and cannot have, one line each.
    pub(super) fn wrong(&self, open: &BTreeMap<String, String>) -> Vec<String> {
        let (got, passed) = (self.with_fields(&self.got), self.with_fields(&self.passed));
        let missing = open.iter().filter(|(name, _)| {
            passed.contains(*name) && !got.contains(*name) && !self.made.contains(*name)
        });
        let told = missing.map(|(name, place)| {
            format!(
                "{place}: {name} has to be passed, and no other crate can make it: give it a `new`"
            )
        });
        told.collect()
    }

    /// These types, and those of their fields.
    fn with_fields(&self, of: &BTreeSet<String>) -> BTreeSet<String> {
        let (mut all, mut next) = (BTreeSet::new(), Vec::from_iter(of.iter()));
        while let Some(name) = next.pop() {
            if all.insert(name.clone()) {
                next.extend(self.fields.get(name).into_iter().flatten());
            }
        }
        all
    }

    fn take(&mut self, signature: &Signature, is_implemented: bool) {
        let (mut arguments, mut result) = (Names::default(), Names::default());
        for argument in &signature.inputs {
            if let FnArg::Typed(argument) = argument {
                arguments.visit_type(&argument.ty);
            }
        }
        arguments.visit_generics(&signature.generics);
        if let ReturnType::Type(_, of) = &signature.output {
            result.visit_type(of);
        }
        let (passed, got) = if is_implemented { (result, arguments) } else { (arguments, result) };
        self.passed.extend(passed.0);
        self.got.extend(got.0);
    }

    fn fields(&mut self, of: &syn::Ident, fields: &syn::Fields, are_public: bool) {
        let mut names = Names::default();
        let public = fields.iter().filter(|field| are_public || is_public(&field.vis));
        public.for_each(|field| names.visit_type(&field.ty));
        self.fields.entry(of.to_string()).or_default().extend(names.0);
    }

    fn derives(&mut self, of: &syn::Ident, attributes: &[syn::Attribute]) {
        let text =
            |one: &syn::Attribute| one.meta.require_list().ok().map(|l| l.tokens.to_string());
        let derived =
            attributes.iter().filter(|one| one.path().is_ident("derive")).filter_map(text);
        if derived.into_iter().any(|list| list.contains("Default") || list.contains("Deserialize"))
        {
            self.made.insert(of.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Made {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_public(&item.vis) {
            self.take(&item.sig, false);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if !is_public(&item.vis) {
            return;
        }
        for one in &item.items {
            if let syn::TraitItem::Fn(method) = one {
                self.take(&method.sig, true);
            }
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let syn::Type::Path(of) = &*item.self_ty else { return };
        let Some(of) = of.path.segments.last() else { return };
        let implemented = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if implemented.is_some_and(|of| of.ident == "Default" || of.ident == "From") {
            self.made.insert(of.ident.to_string());
        }
        for one in &item.items {
            let syn::ImplItem::Fn(method) = one else { continue };
            if !is_public(&method.vis) {
                continue;
            }
            let mut result = Names::default();
            result.visit_return_type(&method.sig.output);
            if result.0.contains("Self") || result.0.contains(&of.ident.to_string()) {
                self.made.insert(of.ident.to_string());
            }
            self.take(&method.sig, false);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.fields(&item.ident, &item.fields, false);
        self.derives(&item.ident, &item.attrs);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        for variant in &item.variants {
            self.fields(&item.ident, &variant.fields, true);
        }
        // Any crate makes the variants of an enum.
        self.made.insert(item.ident.to_string());
    }

    /// What a macro writes is not read: what it names counts as made.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let text = item.mac.tokens.to_string();
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        self.made.extend(words.map(str::to_owned));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !item.attrs.iter().any(|one| one.path().is_ident("cfg")) {
            visit::visit_item_mod(self, item);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.extend(path.segments.last().map(|segment| segment.ident.to_string()));
        visit::visit_path(self, path);
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_have_to_pass_and_cannot_make_is_named() {
        let text = "pub fn run(order: &Order, plan: &Plan) -> Report {}
            pub fn plan(policy: &Policy) -> Plan {}
            pub struct Order { pub limits: Option<Limits>, inner: Inner }
            impl Order { pub fn new() -> Self {} }
            pub struct Limits { pub most: u8 }
            pub struct Inner { pub a: u8 }
            #[derive(Default)] pub struct Policy { pub a: u8 }
            pub struct Plan { pub groups: Vec<Group> }
            pub struct Group { pub a: u8 }
            pub struct Work { pub a: u8 }
            pub struct Planned { pub a: u8 }
            pub trait Hook { fn work(&self, planned: &Planned) -> Option<Work>; }
            pub fn show(planned: &Planned) {}";
        let mut made = Made::default();
        made.visit_file(&syn::parse_file(text).unwrap());
        let all = ["Order", "Limits", "Inner", "Policy", "Plan", "Group", "Work", "Planned"];
        let open = all.map(|name| (name.to_owned(), "lib.rs:1".to_owned())).into();
        let wrong = made.wrong(&open);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("lib.rs:1: Limits has to be passed"), "{wrong:?}");
        assert!(wrong[1].starts_with("lib.rs:1: Work has to be passed"), "{wrong:?}");
    }
}
