//! Tokens and money, short.

/// Below a thousand as it is, below a million as `2.5k`, else as `1.25M`.
pub fn tokens(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        // what would round to 1000.0k is a million
        1000..999_950 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.2}M", n as f64 / 1e6),
    }
}

/// US dollars: `$0.00`, `$0.0042`, `$0.07`, `$1,234`.
pub fn money(dollars: f64) -> String {
    if !dollars.is_finite() {
        return "$?".into();
    }
    if dollars == 0.0 {
        return "$0.00".into();
    }
    // what would round to $100.00 is said as one of that size is
    if dollars >= 99.995 {
        let whole = format!("{dollars:.0}");
        let mut out = String::new();
        for (i, digit) in whole.chars().enumerate() {
            if i > 0 && (whole.len() - i).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        return format!("${out}");
    }
    if dollars >= 0.01 { format!("${dollars:.2}") } else { format!("${dollars:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (n, text) in [
            (0, "0"),
            (122, "122"),
            (999, "999"),
            (1000, "1.0k"),
            (2_512, "2.5k"),
            (357_900, "357.9k"),
            (999_949, "999.9k"),
            (999_950, "1.00M"),
            (1_250_000, "1.25M"),
        ] {
            assert_eq!(tokens(n), text);
        }
        for (n, text) in [
            (0.0, "$0.00"),
            (0.00421, "$0.0042"),
            (0.07, "$0.07"),
            (12.3, "$12.30"),
            (99.999, "$100"),
            (1234.4, "$1,234"),
            (1_234_567.0, "$1,234,567"),
            (f64::NAN, "$?"),
        ] {
            assert_eq!(money(n), text);
        }
    }
}
