//! Durations as people write them: `90`, `10m`, `1h30m`, `PT1H30M`, `01:30:00`.

use super::QuantityError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The most seconds anybody means (about 30,000 years): adding it to a clock does not overflow.
const MOST_SECONDS: u64 = 1_000_000_000_000;

/// A length of time, exact to a millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(Duration);

impl Span {
    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// As a [`Duration`].
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(d: Duration) -> Self {
        Self(Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Span {
    /// `1h30m`, `10m`, `45s`, `1.5s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs();
        let millis = self.0.subsec_millis();
        let (d, h, m, s) = (secs / 86400, secs / 3600 % 24, secs / 60 % 60, secs % 60);
        for (n, unit) in [(d, "d"), (h, "h"), (m, "m")] {
            if n > 0 {
                write!(f, "{n}{unit}")?;
            }
        }
        if millis > 0 {
            let text = format!("{millis:03}");
            write!(f, "{s}.{}s", text.trim_end_matches('0'))
        } else if s > 0 || secs == 0 {
            write!(f, "{s}s")
        } else {
            Ok(())
        }
    }
}

impl FromStr for Span {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError(format!("'{text}' is not a duration: use seconds, 1h30m, or ISO 8601 like PT1H30M"));
        let trimmed = text.trim();
        let secs = if trimmed.contains(':') {
            let parts: Vec<&str> = trimmed.split(':').collect();
            let [h, m, s] = parts.as_slice() else { return Err(wrong()) };
            let part = |p: &str| match p.bytes().all(|b| b.is_ascii_digit()) {
                true => p.parse::<u32>().map_err(|_| wrong()),
                false => Err(wrong()),
            };
            let (h, m, s) = (part(h)?, part(m)?, part(s)?);
            if m > 59 || s > 59 {
                return Err(wrong());
            }
            f64::from(h) * 3600.0 + f64::from(m) * 60.0 + f64::from(s)
        } else {
            let mut lower = trimmed.to_ascii_lowercase();
            if let Some(iso) = lower.strip_prefix('p') {
                // months and years have no fixed length and are refused; a unit is on its own side of the `t`
                let (date, time) = iso.split_once('t').map_or((iso, None), |(date, time)| (date, Some(time)));
                let only = |text: &str, units: &[char]| {
                    text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || units.contains(&(b as char)))
                };
                // each number has its unit, also one before the `t`
                let is_unit = |c: char| c.is_ascii_alphabetic() && c != 't';
                let whole = iso.ends_with(is_unit)
                    && (date.is_empty() || date.ends_with(is_unit))
                    && time.is_none_or(|time| time.starts_with(|c: char| c.is_ascii_digit()));
                if !whole || !only(date, &['w', 'd']) || !only(time.unwrap_or_default(), &['h', 'm', 's']) || iso.contains("ms") {
                    return Err(wrong());
                }
                lower = format!("{date}{}", time.unwrap_or_default());
            }
            units(&lower).ok_or_else(wrong)?
        };
        let millis = secs * 1000.0;
        if !millis.is_finite() || !(0.0..=MOST_SECONDS as f64 * 1000.0).contains(&millis) {
            return Err(wrong());
        }
        Ok(Self(Duration::from_millis(millis.round() as u64)))
    }
}

/// Seconds of `90`, `1h30m`, `2.5s`: each unit at most once, largest first or not.
fn units(text: &str) -> Option<f64> {
    if text.is_empty() {
        return None;
    }
    let number = |text: &str| Some(text).filter(|t| super::is_decimal(t)).and_then(|t| t.parse::<f64>().ok());
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return number(text);
    }
    let (mut rest, mut total, mut seen) = (text, 0.0, Vec::new());
    while !rest.is_empty() {
        let at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let n = number(&rest[..at])?;
        let tail = &rest[at..];
        let (unit, next) = if let Some(t) = tail.strip_prefix("ms") { ("ms", t) } else { tail.split_at_checked(1)? };
        let scale = match unit {
            "w" => 604_800.0,
            "d" => 86_400.0,
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        if seen.contains(&unit) {
            return None;
        }
        seen.push(unit);
        total += n * scale;
        rest = next.trim_start();
    }
    Some(total)
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> de::Visitor<'de> for V {
            type Value = Span;
            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Span, D::Error> {
                deserializer.deserialize_any(self)
            }
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration, such as 90 (seconds), 10m or 1h30m")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Span, E> {
                if n > MOST_SECONDS {
                    return n.to_string().parse().map_err(E::custom);
                }
                Ok(Span::from_secs(n))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Span, E> {
                u64::try_from(n)
                    .map_err(|_| E::custom(format!("a duration cannot be negative: {n}")))
                    .and_then(|n| self.visit_u64(n))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Span, E> {
                n.to_string().parse().map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_newtype_struct(super::QUANTITY, V)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["number", "string"], "description": "a duration: seconds, 1h30m, PT1H30M or HH:MM:SS"})
    }
}
