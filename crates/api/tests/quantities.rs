//! CPUs, memory, durations: what is read, what is refused, and that nothing is lost on the way out and in.
#![cfg(test)]

use hmz_api::{Cpus, Memory, Span};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

fn both_ways<T>(value: T)
where
    T: Display + FromStr + Serialize + DeserializeOwned + PartialEq + Debug,
    T::Err: Debug,
{
    assert_eq!(value.to_string().parse::<T>().unwrap(), value);
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value, "{json}");
}

proptest! {
    #[test]
    fn cpus_survive_and_keep_their_order(a in 0..=1_000_000_000_000u64, b in 0..=1_000_000_000_000u64) {
        let (x, y) = (Cpus::from_millis(a), Cpus::from_millis(b));
        both_ways(x);
        prop_assert_eq!(format!("{a}m").parse::<Cpus>().unwrap(), x);
        prop_assert_eq!(a.cmp(&b), x.cmp(&y));
    }

    #[test]
    fn memory_survives_and_keeps_its_order(a: u64, b: u64, shift in 0..6u32) {
        let (x, y) = (Memory::from_bytes(a >> 10 << (shift * 2)), Memory::from_bytes(b));
        both_ways(x);
        prop_assert_eq!(x.bytes().cmp(&b), x.cmp(&y));
    }

    #[test]
    fn units_of_memory_are_powers_of_1024(n in 0..8000u64, unit in 0..5usize) {
        let word = ["K", "M", "G", "T", "P"][unit];
        let expected = Memory::from_bytes(n << (10 * (unit + 1)));
        for text in [format!("{n}{word}"), format!("{n}{word}i"), format!("{n} {word}iB"), format!("{n}{word}B").to_lowercase()] {
            prop_assert_eq!(text.parse::<Memory>().unwrap(), expected, "{}", text);
        }
    }

    #[test]
    fn durations_survive_and_keep_their_order(a in 0..1_000_000_000_000u64, b in 0..1_000_000_000_000u64) {
        let (x, y) = (Span::from(Duration::from_millis(a)), Span::from(Duration::from_millis(b)));
        both_ways(x);
        prop_assert_eq!(a.cmp(&b), x.cmp(&y));
    }

    #[test]
    fn no_text_panics(text in ".{0,24}") {
        let _ = (text.parse::<Cpus>(), text.parse::<Memory>(), text.parse::<Span>());
    }
}

#[test]
fn what_cpus_are() {
    for (text, millis) in [("4", 4000), ("0.5", 500), ("1.25", 1250), ("250m", 250), (" 2 ", 2000), ("4.0", 4000), ("0", 0)] {
        assert_eq!(text.parse::<Cpus>().unwrap().millis(), millis, "{text}");
    }
    for text in ["", "four", "-1", "1.", ".5", "1e3", "inf", "nan", "+4", "m", "+5m", "0x10", "4 5", "1000000000001"] {
        assert_eq!(text.parse::<Cpus>().unwrap_err().0, format!("'{text}' is not a number of CPUs, such as 2 or 0.5"));
    }
    assert_eq!("600.00049".parse::<Cpus>().unwrap_err().0, "'600.00049' CPUs is finer than a thousandth");
    for json in ["-1", "1e300", "true", "null", "[]"] {
        assert!(serde_json::from_str::<Cpus>(json).is_err(), "{json}");
    }
}

#[test]
fn what_memory_is() {
    for (text, bytes) in [("8G", 8 << 30), ("1.5G", 3 << 29), ("512M", 512 << 20), ("100", 100), ("100B", 100), ("0.3K", 307)] {
        assert_eq!(text.parse::<Memory>().unwrap().bytes(), bytes, "{text}");
    }
    for text in ["", "G", "8X", "-1G", "1.5", "1.G", ".5G", "1.2.3G", "8 G G", "99999999P", "1e3G", "+1G"] {
        let expected = format!("'{text}' must be a number and unit, such as 64G or 512M");
        assert_eq!(text.parse::<Memory>().unwrap_err().0, expected);
    }
    for (bytes, words) in
        [(3u64 << 30, "3 GiB"), (1610612736, "1.5 GiB"), (8 << 20, "8 MiB"), (1000, "1000 bytes"), (2163589754880, "1.97 TiB")]
    {
        assert_eq!(Memory::from_bytes(bytes).in_words(), words);
    }
}

#[test]
fn what_a_duration_is() {
    for (text, seconds) in [
        ("90", 90.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("30m1h", 5400.0),
        ("1h 30m", 5400.0),
        ("2.5s", 2.5),
        ("100ms", 0.1),
        ("1w", 604_800.0),
        ("PT1H30M", 5400.0),
        ("p1dt10m", 87_000.0),
        ("P1D", 86_400.0),
        ("PT0.5S", 0.5),
        ("01:30:00", 5400.0),
        ("0", 0.0),
    ] {
        assert_eq!(text.parse::<Span>().unwrap().duration().as_secs_f64(), seconds, "{text}");
    }
    for text in [
        "",
        "abc",
        "10x",
        "1h1h",
        "-5",
        "1.5.5s",
        ".",
        "5.",
        "m",
        "P",
        "PT",
        "PT5",
        "P5",
        "P1M",
        "P1Y",
        "PT1D",
        "P1H",
        "PT1MS",
        "P1Th",
        "P1DT",
        "PTH",
        "1:30",
        "00:60:00",
        "00:00:60",
        "+1:00:00",
        "1e3",
        "inf",
        "99999999999999999s",
    ] {
        let expected = format!("'{text}' is not a duration: use seconds, 1h30m, or ISO 8601 like PT1H30M");
        assert_eq!(text.parse::<Span>().unwrap_err().0, expected);
    }
    // a number nobody means must not overflow a clock later
    assert!(serde_json::from_str::<Span>("18446744073709551615").is_err());
    assert!(serde_json::from_str::<Span>("-1").unwrap_err().to_string().starts_with("a duration cannot be negative: -1"));
    assert_eq!(serde_json::from_str::<Span>("1.5").unwrap().to_string(), "1.5s");
}
