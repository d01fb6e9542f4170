//! Bounds the memory of whatever is deserialized, by the sizes of the types it becomes: a few bytes
//! of a file can ask for much more memory than they take. Knows nothing of the types and nothing of
//! the format.
//!
//! Every value is charged the size that it has in memory where it becomes a part of another, so
//! that a value within a value is charged more than once: the bound is on the safe side.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// What one allocation costs beside its contents, bytes.
const ALLOCATION_BYTES: usize = 32;
/// A map makes room for so many entries at once.
const MAP_ENTRIES: usize = 12;

/// How much memory is left.
pub(super) struct Meter {
    left_bytes: Cell<u64>,
    exhausted: Cell<bool>,
}

impl Meter {
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            left_bytes: Cell::new(bytes),
            exhausted: Cell::new(false),
        }
    }

    /// Whether something was refused.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    fn charge<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left_bytes.get().checked_sub(bytes as u64) {
            Some(left) => {
                self.left_bytes.set(left);
                Ok(())
            }
            None => {
                self.exhausted.set(true);
                Err(E::custom("too much memory"))
            }
        }
    }
}

/// A deserializer, visitor, access or seed whose values are charged.
pub(super) struct Metered<'m, T> {
    inner: T,
    meter: &'m Meter,
}

impl<'m, T> Metered<'m, T> {
    pub(super) fn new(inner: T, meter: &'m Meter) -> Self {
        Self { inner, meter }
    }
}

macro_rules! ask {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(Metered::new(visitor, self.meter))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Metered<'_, D> {
    type Error = D::Error;

    ask! {
        deserialize_any deserialize_bool
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit
        deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.deserialize_tuple(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.deserialize_tuple_struct(name, len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! pass {
    ($($method:ident($type:ty))*) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Metered<'_, V> {
    type Value = V::Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(out)
    }

    pass! {
        visit_bool(bool) visit_char(char)
        visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128)
        visit_f32(f32) visit_f64(f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.meter.charge(text.len() + ALLOCATION_BYTES)?;
        self.inner.visit_str(text)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.meter.charge(text.len() + ALLOCATION_BYTES)?;
        self.inner.visit_borrowed_str(text)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<V::Value, E> {
        self.meter.charge(text.len() + ALLOCATION_BYTES)?;
        self.inner.visit_string(text)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<V::Value, E> {
        self.meter.charge(bytes.len() + ALLOCATION_BYTES)?;
        self.inner.visit_bytes(bytes)
    }

    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<V::Value, E> {
        self.meter.charge(bytes.len() + ALLOCATION_BYTES)?;
        self.inner.visit_borrowed_bytes(bytes)
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<V::Value, E> {
        self.meter.charge(bytes.len() + ALLOCATION_BYTES)?;
        self.inner.visit_byte_buf(bytes)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Metered::new(from, self.meter))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner
            .visit_newtype_struct(Metered::new(from, self.meter))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.meter.charge(ALLOCATION_BYTES)?;
        self.inner.visit_seq(Metered::new(access, self.meter))
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.meter.charge(ALLOCATION_BYTES)?;
        self.inner.visit_map(MeteredMap {
            access: Metered::new(access, self.meter),
            entries: 0,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Metered::new(access, self.meter))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Metered<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let value = self
            .inner
            .next_element_seed(Metered::new(seed, self.meter))?;
        if value.is_some() {
            self.meter.charge(size_of::<T::Value>())?;
        }
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The entries of a map.
struct MeteredMap<'m, A> {
    access: Metered<'m, A>,
    entries: usize,
}

impl<A> MeteredMap<'_, A> {
    /// So many entries' room is made for the one that comes.
    fn room(&self) -> usize {
        if self.entries == 0 { MAP_ENTRIES } else { 2 }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for MeteredMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Metered { inner, meter } = &mut self.access;
        let key = inner.next_key_seed(Metered::new(seed, meter))?;
        if key.is_some() {
            meter.charge(size_of::<K::Value>() * self.room())?;
        }
        Ok(key)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let Metered { inner, meter } = &mut self.access;
        let value = inner.next_value_seed(Metered::new(seed, meter))?;
        meter.charge(size_of::<T::Value>() * self.room())?;
        self.entries += 1;
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.access.inner.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Metered<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Metered::new(from, self.meter))
    }
}

impl<'m, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Metered<'m, A> {
    type Error = A::Error;
    type Variant = Metered<'m, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let meter = self.meter;
        let (value, variant) = self.inner.variant_seed(Metered::new(seed, meter))?;
        Ok((value, Metered::new(variant, meter)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Metered<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner
            .newtype_variant_seed(Metered::new(seed, self.meter))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = Metered::new(visitor, self.meter);
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde::de::DeserializeOwned;

    use super::{Meter, Metered};

    /// Reads a value with so much memory; none where that is too little.
    fn read<T: DeserializeOwned>(bytes: &[u8], memory_bytes: u64) -> Option<T> {
        let meter = Meter::new(memory_bytes);
        let mut from = postcard::Deserializer::from_bytes(bytes);
        let value = T::deserialize(Metered::new(&mut from, &meter));
        assert_eq!(value.is_err(), meter.is_exhausted());
        value.ok()
    }

    #[derive(serde::Deserialize, serde::Serialize, PartialEq, Debug, Clone, Copy)]
    enum Kind {
        Plain,
        Wrapped(u64),
        Named { left: u32, right: Option<u8> },
    }

    // Check that values of every shape are read as they are without the meter.
    #[test]
    fn shapes() {
        let value = (
            BTreeMap::from([(7u32, Arc::<str>::from("seven"))]),
            vec![
                Kind::Plain,
                Kind::Wrapped(1 << 40),
                Kind::Named {
                    left: 1,
                    right: Some(2),
                },
            ],
            [1u64, 2, 3],
            -5i32,
            true,
            'x',
        );
        let bytes = postcard::to_allocvec(&value).unwrap();
        assert_eq!(read(&bytes, 1 << 20), Some(value));
    }

    // Check that a list of small things that are large in memory is refused by what they take
    // there, not by their bytes.
    #[test]
    fn small_in_the_file() {
        let maps: Vec<Arc<BTreeMap<u32, [u64; 4]>>> = (0..1000)
            .map(|_| Arc::new(BTreeMap::from([(1, [0; 4])])))
            .collect();
        let bytes = postcard::to_allocvec(&maps).unwrap();
        assert!(bytes.len() < 8_000);
        // A map has room for eleven entries of 36 bytes.
        assert!(read::<Vec<Arc<BTreeMap<u32, [u64; 4]>>>>(&bytes, 400_000).is_none());
        assert!(read::<Vec<Arc<BTreeMap<u32, [u64; 4]>>>>(&bytes, 4_000_000).is_some());
    }

    // Check that text is charged, too.
    #[test]
    fn text() {
        let bytes = postcard::to_allocvec(&"x".repeat(5000)).unwrap();
        assert!(read::<String>(&bytes, 4000).is_none());
        assert!(read::<Box<str>>(&bytes, 6000).is_some());
    }
}
