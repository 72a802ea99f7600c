//! How long ago, as kubectl says it.

use jiff::Timestamp;

/// `12s`, `5m`, `5m30s`, `3h`, `2d`, `1y20d`: the fewer the older. Nothing known is `<none>`; the future is `0s`.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    let mut out = String::new();
    write(then, now, &mut out);
    out
}

/// The same, behind what is there.
pub fn write(then: Option<Timestamp>, now: Timestamp, out: &mut String) {
    match then {
        Some(then) => write_length(now.as_second() - then.as_second(), out),
        None => out.push_str(super::NONE),
    }
}

/// A number of seconds as an age.
pub fn length(seconds: i64) -> String {
    let mut out = String::new();
    write_length(seconds, &mut out);
    out
}

fn write_length(seconds: i64, out: &mut String) {
    let s = seconds.max(0);
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    let (big, small) = match s {
        0..120 => ((s, 's'), None),
        120..600 => ((m, 'm'), Some((s % 60, 's'))),
        600..10_800 => ((m, 'm'), None),
        10_800..28_800 => ((h, 'h'), Some((m % 60, 'm'))),
        28_800..172_800 => ((h, 'h'), None),
        172_800..691_200 => ((d, 'd'), Some((h % 24, 'h'))),
        691_200..63_072_000 => ((d, 'd'), None),
        _ => ((d / 365, 'y'), Some((d % 365, 'd'))),
    };
    let mut part = |(number, word): (i64, char)| {
        // a text takes whatever is written to it
        let _ = std::fmt::write(out, format_args!("{number}{word}"));
    };
    part(big);
    small.filter(|(number, _)| *number != 0).into_iter().for_each(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_grow_coarser() {
        for (seconds, text) in [
            (-5, "0s"),
            (12, "12s"),
            (119, "119s"),
            (300, "5m"),
            (330, "5m30s"),
            (3600, "60m"),
            (10_800, "3h"),
            (12_600, "3h30m"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_072_000, "2y"),
        ] {
            assert_eq!(length(seconds), text);
        }
        assert_eq!(age(None, Timestamp::UNIX_EPOCH), "<none>");
    }
}
