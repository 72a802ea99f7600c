//! How long ago, as kubectl says it.

use jiff::Timestamp;

/// `12s`, `5m`, `5m30s`, `3h`, `2d`, `1y20d`: the fewer the older. Nothing known is `<none>`; the future is `0s`.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    match then {
        Some(then) => length(now.as_second() - then.as_second()),
        None => "<none>".into(),
    }
}

/// A number of seconds as an age.
pub fn length(seconds: i64) -> String {
    let two = |big: i64, word: char, small: i64, other: char| match small {
        0 => format!("{big}{word}"),
        _ => format!("{big}{word}{small}{other}"),
    };
    let s = seconds.max(0);
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    match s {
        0..120 => format!("{s}s"),
        120..600 => two(m, 'm', s % 60, 's'),
        600..10_800 => format!("{m}m"),
        10_800..28_800 => two(h, 'h', m % 60, 'm'),
        28_800..172_800 => format!("{h}h"),
        172_800..691_200 => two(d, 'd', h % 24, 'h'),
        691_200..63_072_000 => format!("{d}d"),
        _ => two(d / 365, 'y', d % 365, 'd'),
    }
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
