//! Enums whose values have a name in reports, metrics and documents: each value is declared once.

/// Declares an enum together with `ALL`, its values in order, `name`, which is published and so
/// does not follow from the identifier, and `help`: its comment, as one sentence or a few.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        pub enum $type:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[default $($default:tt)?])?
                $variant:ident $(= $value:literal)? => $name:literal,
            )+
        }
    ) => {
        $(#[$attribute])*
        pub enum $type {
            $(
                $(#[doc = $doc])+
                $(#[default $($default)?])?
                $variant $(= $value)?,
            )+
        }

        impl $type {
            /// All of them, in the order of their values.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in reports, metrics and documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}
