//! The macros that define options.

/// Defines a struct whose fields are options:
///
/// ```text
/// /// The purpose of the option, as the manual has it.
/// field: Type = default => live("nameInTheFile", Effect::Everywhere).bounds();
/// ```
macro_rules! options {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty = $default:expr => $option:expr;)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        $crate::reference::rows! { $name { $($(#[doc = $doc])* $field => $option;)* } }
    };
}

/// Makes options of the fields of a struct; one that is left out does not compile.
macro_rules! rows {
    ($name:ident { $($(#[doc = $doc:literal])* $field:ident => $option:expr;)* }) => {
        impl $crate::reference::Options for $name {
            fn rows<T: 'static>(at: fn(&mut T) -> &mut Self) -> Vec<$crate::reference::OptionRow<T>> {
                let _all = |Self { $($field: _),* }: Self| {};
                vec![$($option.row(&[$($doc),*], move |of| &mut at(of).$field)),*]
            }
        }

        impl $crate::reference::OptionValue for $name {
            fn kind() -> $crate::reference::ValueKind {
                $crate::reference::ValueKind::object::<Self>()
            }

            fn read(
                field: &$crate::reference::Field,
                fields: &mut winddown_yaml::Fields<'_, '_>,
            ) -> Option<Self> {
                fields.below(field.name, $crate::reference::options_below)
            }

            fn written(&self, _: &$crate::reference::Field) -> serde_json::Value {
                $crate::reference::written_options(self)
            }

            fn root(&mut self, _: &$crate::reference::Field, root: &std::path::Path) {
                $crate::reference::root_options(self, root);
            }
        }
    };
}

/// Defines an enum whose variants are words in the file.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$about:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$about])* $variant,)*
        }

        impl $crate::reference::Word for $name {
            const ALL: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),*];
        }
    };
}

/// Defines the configuration: the sections of the file, each with the function that checks its options against each
/// other, and the structs of its options.
macro_rules! sections {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($title:literal, $relate:expr => { $($(#[$about:meta])* $field:ident: $type:ty,)* })*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($($(#[$about])* pub $field: $type,)*)*
        }

        impl $name {
            fn sections() -> Vec<$crate::reference::OptionSection> {
                vec![$($crate::reference::OptionSection::new(
                    $title,
                    [$($crate::reference::Options::rows(|config: &mut Self| &mut config.$field)),*],
                    $relate,
                )),*]
            }
        }
    };
}

pub(crate) use {options, rows, sections, words};
