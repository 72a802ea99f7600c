//! CPUs, exact to a thousandth.

use super::QuantityError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The most thousandths anybody means; a sum of shares stays far from the end of a u64.
const MOST: u64 = 1_000_000_000_000;

/// A number of CPUs, kept in thousandths so that shares add up exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cpus(u64);

impl Cpus {
    /// `n` thousandths of a CPU.
    pub const fn from_millis(n: u64) -> Self {
        Self(n)
    }

    /// `n` whole CPUs.
    pub const fn whole(n: u64) -> Self {
        Self(n * 1000)
    }

    /// In thousandths.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Reads a float; it must be finite, not negative, and have at most three decimals.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn from_f64(n: f64) -> Result<Self, QuantityError> {
        let millis = n * 1000.0;
        if !n.is_finite() || n < 0.0 || millis > MOST as f64 {
            return Err(QuantityError(format!("'{n}' is not a number of CPUs, such as 2 or 0.5")));
        }
        // what a decimal fraction loses as a float, and not more
        if (millis - millis.round()).abs() > (millis * 1e-14).max(1e-9) {
            return Err(QuantityError(format!("'{n}' CPUs is finer than a thousandth")));
        }
        Ok(Self(millis.round() as u64))
    }
}

impl fmt::Display for Cpus {
    /// As `%g` prints it: `4`, `0.5`, `1.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let text = format!("{rest:03}");
        write!(f, "{whole}.{}", text.trim_end_matches('0'))
    }
}

impl FromStr for Cpus {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError(format!("'{text}' is not a number of CPUs, such as 2 or 0.5"));
        let trimmed = text.trim();
        if let Some(millis) = trimmed.strip_suffix('m') {
            let millis = Some(millis).filter(|m| m.bytes().all(|b| b.is_ascii_digit())).and_then(|m| m.parse().ok());
            return millis.filter(|n| *n <= MOST).map(Self).ok_or_else(wrong);
        }
        if !super::is_decimal(trimmed) {
            return Err(wrong());
        }
        trimmed.parse().map_err(|_| wrong()).and_then(Self::from_f64)
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1000) {
            serializer.serialize_u64(self.0 / 1000)
        } else {
            serializer.serialize_f64(self.0 as f64 / 1000.0)
        }
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> de::Visitor<'de> for V {
            type Value = Cpus;
            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cpus, D::Error> {
                deserializer.deserialize_any(self)
            }
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of CPUs, such as 4 or 0.5")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Cpus, E> {
                n.checked_mul(1000)
                    .filter(|n| *n <= MOST)
                    .map(Cpus)
                    .ok_or_else(|| E::custom(format!("'{n}' is not a number of CPUs, such as 2 or 0.5")))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Cpus, E> {
                u64::try_from(n).map_err(|_| E::custom(format!("CPUs cannot be negative: {n}"))).and_then(|n| self.visit_u64(n))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Cpus, E> {
                Cpus::from_f64(n).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cpus, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_newtype_struct(super::QUANTITY, V)
    }
}

impl JsonSchema for Cpus {
    fn schema_name() -> Cow<'static, str> {
        "Cpus".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["number", "string"], "minimum": 0, "description": "CPUs; fractions are allowed, such as 0.5"})
    }
}
