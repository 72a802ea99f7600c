//! Memory in bytes. `8G`, `8Gi` and `8GB` are all 8 × 2³⁰; a plain integer is bytes.

use super::QuantityError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// An amount of memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Memory(u64);

impl Memory {
    /// `n` bytes.
    pub const fn from_bytes(n: u64) -> Self {
        Self(n)
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// As a refusal says it: three significant digits with TiB, GiB or MiB, else bytes.
    pub fn in_words(self) -> String {
        const UNITS: [(&str, u64); 3] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                let n = self.0 as f64 / size as f64;
                let digits = if n >= 100.0 {
                    0
                } else if n >= 10.0 {
                    1
                } else {
                    2
                };
                let text = format!("{n:.digits$}");
                let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
                return format!("{text} {unit}");
            }
        }
        format!("{} bytes", self.0)
    }
}

impl fmt::Display for Memory {
    /// The largest unit that divides it: `8G`, `512M`, `1536M`, else plain bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("P", 50), ("T", 40), ("G", 30), ("M", 20), ("K", 10)] {
            if self.0 != 0 && self.0.is_multiple_of(1u64 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl FromStr for Memory {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError(format!("'{text}' must be a number and unit, such as 64G or 512M"));
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim().to_ascii_uppercase();
        let shift = match unit.as_str() {
            "" | "B" => 0,
            "K" | "KI" | "KB" | "KIB" => 10,
            "M" | "MI" | "MB" | "MIB" => 20,
            "G" | "GI" | "GB" | "GIB" => 30,
            "T" | "TI" | "TB" | "TIB" => 40,
            "P" | "PI" | "PB" | "PIB" => 50,
            _ => return Err(wrong()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1u64 << shift).map(Self).ok_or_else(wrong);
        }
        if shift == 0 || !super::is_decimal(number) {
            return Err(wrong());
        }
        let n: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = n * (1u64 << shift) as f64;
        if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
            return Err(wrong());
        }
        Ok(Self(bytes as u64))
    }
}

impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.to_string();
        if text.bytes().all(|b| b.is_ascii_digit()) { serializer.serialize_u64(self.0) } else { serializer.serialize_str(&text) }
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> de::Visitor<'de> for V {
            type Value = Memory;
            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Memory, D::Error> {
                deserializer.deserialize_any(self)
            }
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount of memory, such as 8G or 512M, or a number of bytes")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Memory, E> {
                Ok(Memory(n))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Memory, E> {
                u64::try_from(n).map(Memory).map_err(|_| E::custom(format!("memory cannot be negative: {n}")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Memory, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_newtype_struct(super::QUANTITY, V)
    }
}

impl JsonSchema for Memory {
    fn schema_name() -> Cow<'static, str> {
        "Memory".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["integer", "string"], "minimum": 0, "description": "memory, such as 8G or 512M (powers of 1024), or bytes"})
    }
}
