//! One declaration per setting, and everything that follows from it.
//!
//! `section!` turns a list of settings into the structure as it is written (every key optional,
//! unknown keys refused, each value with its place in the file), the structure as it is meant
//! (every value within its bounds), the step between them, and the list of keys that the sample
//! file and the documentation are made from.

use toml::{Spanned, Value};

/// A setting, for the sample file and the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingKey {
    /// The table it stands in; empty for the top of the file.
    pub table: &'static str,
    /// Its name in that table.
    pub name: &'static str,
    /// What it decides, in whole sentences.
    pub comment: String,
    /// What may be written.
    pub allowed: String,
    /// The default as it would be written.
    pub sample: String,
}

/// A value that was written and its bytes in the file.
pub(super) type Written = Option<Spanned<Value>>;

/// A value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidValue {
    /// Where the value begins, in bytes from the start of the file.
    pub(super) offset: usize,
    /// The key with its table.
    pub(super) key: String,
    /// What is allowed.
    pub(super) sentence: String,
}

/// Joins a table and a key as one would write them on one line.
pub(super) fn full_name(table: &str, name: &str) -> String {
    if table.is_empty() {
        name.to_owned()
    } else {
        format!("{table}.{name}")
    }
}

/// Joins the lines of a doc comment.
pub(super) fn join_comment(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Declares the settings of one table. See the module's description.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $meant:ident, $written:ident in $table:literal $(with $($sub:ident: $sub_written:ident => $sub_meant:ty),+)?;
        $( $(#[doc = $comment:literal])+ $key:ident as $field:ident: $type:ty = $kind:expr; )+
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $meant {
            $( $(#[doc = $comment])+ pub $field: $type, )+
            $($( #[doc = concat!("The settings of the table `", stringify!($sub), "`.")] pub $sub: $sub_meant, )+)?
        }

        impl Default for $meant {
            fn default() -> Self {
                Self {
                    $( $field: $crate::config::kinds::SettingKind::<$type>::default_value(&$kind), )+
                    $($( $sub: <$sub_meant>::default(), )+)?
                }
            }
        }

        impl $meant {
            /// The settings in force by name, as the status shows them.
            #[must_use]
            pub fn in_force(&self) -> serde_json::Map<String, serde_json::Value> {
                let mut shown = serde_json::Map::new();
                $(
                    let value = $crate::config::kinds::SettingKind::<$type>::show(&$kind, &self.$field);
                    shown.insert(stringify!($key).to_owned(), value);
                )+
                $($( shown.insert(stringify!($sub).to_owned(), serde_json::Value::Object(self.$sub.in_force())); )+)?
                shown
            }
        }

        /// The table as it is written in the file.
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct $written {
            $( $key: $crate::config::section::Written, )+
            $($( $sub: $sub_written, )+)?
        }

        impl $written {
            /// What was written, where it is allowed; what is not goes to `refusals`.
            pub(super) fn mean(self, refusals: &mut Vec<$crate::config::section::InvalidValue>) -> $meant {
                let mut meant = <$meant>::default();
                $(
                    if let Some(written) = self.$key {
                        match $crate::config::kinds::SettingKind::<$type>::read(&$kind, written.get_ref()) {
                            Ok(value) => meant.$field = value,
                            Err(sentence) => refusals.push($crate::config::section::InvalidValue {
                                offset: written.span().start,
                                key: $crate::config::section::full_name($table, stringify!($key)),
                                sentence,
                            }),
                        }
                    }
                )+
                $($( meant.$sub = self.$sub.mean(refusals).into(); )+)?
                meant
            }

            /// The keys of this table and of the tables in it, in the order of their declaration.
            pub(super) fn keys() -> Vec<$crate::config::section::SettingKey> {
                [
                    vec![
                        $( $crate::config::section::SettingKey {
                            table: $table,
                            name: stringify!($key),
                            comment: $crate::config::section::join_comment(&[$($comment),+]),
                            allowed: $crate::config::kinds::SettingKind::<$type>::allowed(&$kind),
                            sample: $crate::config::kinds::SettingKind::<$type>::sample(&$kind),
                        }, )+
                    ],
                    $($( $sub_written::keys(), )+)?
                ]
                .concat()
            }
        }
    };
}

pub(super) use section;
